package figures

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

const outcomesCaption = "Each point is a change of shares. The horizontal axis is the speed-up that the balancer " +
	"predicted, and the vertical axis the speed-up of the first window with the new shares, with its 90 % interval. " +
	"On the dashed line, both are equal. Noise counts in neither. Both axes are logarithmic."

// outcomes draws a figure into dir: the predicted and the achieved speed-up of each change of shares, for all runs. It
// draws nothing if both values are known for no change.
func outcomes(dir string, s *analysis.SideBySide, labels []string) ([]analysis.Figure, error) {
	const title = "Predicted and achieved speed-up"
	const pad = 1.1 // factor by which the axis exceeds the data
	least, most, found := 1/pad, pad, false
	for _, t := range s.Trials {
		for _, c := range t.Changes {
			if x, y := float64(c.Predicted), float64(c.Achieved); x > 0 && y > 0 {
				least, most, found = min(least, x/pad, y/pad), max(most, x*pad, y*pad), true
			}
		}
	}
	if !found {
		return nil, nil
	}
	p := drawing.NewPlot(title, "predicted (ratio)", "achieved (ratio)")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = doublings{}, doublings{}
	top := most * math.Pow(most/least, 0.05*float64(len(s.Trials))) // leaves space for the legend
	for run, t := range s.Trials {
		if err := addOutcomes(p, run, t, labels[run], least, top); err != nil {
			return nil, fmt.Errorf("draw outcomes: %w", err)
		}
	}
	line, err := plotter.NewLine(plotter.XYs{{X: least, Y: least}, {X: most, Y: most}})
	if err != nil {
		return nil, fmt.Errorf("draw outcomes: %w", err)
	}
	line.Width, line.Dashes = vg.Points(0.8), []vg.Length{4, 3}
	p.Add(line)
	p.Legend.Left = true
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = least, most, least, top
	return []analysis.Figure{{Title: title, Caption: outcomesCaption, Path: "outcomes.png"}},
		drawing.Save(dir, "outcomes", drawing.Width, heightFor(len(s.Trials)), p)
}

// addOutcomes adds the changes of shares of a run, with the label of the run. Intervals are truncated at the ends of
// the vertical axis.
func addOutcomes(p *plot.Plot, run int, t *analysis.Trial, label string, least, top float64) error {
	var points struct {
		plotter.XYs
		plotter.YErrors
	}
	for _, c := range t.Changes {
		x, y := float64(c.Predicted), float64(c.Achieved)
		if !(x > 0 && y > 0) {
			continue
		}
		e := struct{ Low, High float64 }{}
		if low, high := max(float64(c.Low), least), min(float64(c.High), top); low <= y && y <= high {
			e.Low, e.High = y-low, high-y
		}
		points.XYs, points.YErrors = append(points.XYs, plotter.XY{X: x, Y: y}), append(points.YErrors, e)
	}
	if len(points.XYs) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	marks, err := plotter.NewScatter(points.XYs)
	if err != nil {
		return err
	}
	colour := rankLine(run).Color
	bars.Color, bars.Width, bars.CapWidth = colour, vg.Points(0.6), vg.Points(3)
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	shape := shapes[run/len(drawing.Palette)%len(shapes)]
	marks.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(2.5), Shape: shape}
	p.Add(bars, marks)
	p.Legend.Add(label, marks)
	return nil
}

// doublings are ticks at 1 and at each power of two.
type doublings struct{}

// Ticks implements plot.Ticker.
func (doublings) Ticks(low, high float64) (ticks []plot.Tick) {
	for v := math.Exp2(math.Ceil(math.Log2(low))); v <= high; v *= 2 {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
	}
	return ticks
}
