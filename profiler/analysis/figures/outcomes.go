package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

const outcomesCaption = "Each point is a change of shares. The horizontal axis is the speed-up that the balancer predicted, " +
	"and the vertical axis the speed-up of the first window with the new shares, with its 90 % interval. " +
	"On the dashed line, both are equal. Noise counts in neither."

// outcomes draws predicted against achieved speed-ups of the changes of shares of all runs into dir. It draws nothing
// if no change has both.
func outcomes(dir string, s *analysis.SideBySide) ([]analysis.Figure, error) {
	const title = "Predicted and achieved speed-up"
	p := drawing.NewPlot(title, "predicted (ratio)", "achieved (ratio)")
	least, most, found := 1.0, 1.0, false
	for run, t := range s.Trials {
		var points struct {
			plotter.XYs
			plotter.YErrors
		}
		for _, c := range t.Changes {
			x, y, low, high := float64(c.Predicted), float64(c.Achieved), float64(c.Low), float64(c.High)
			if math.IsNaN(x) || math.IsNaN(y) {
				continue
			}
			points.XYs = append(points.XYs, plotter.XY{X: x, Y: y})
			e := struct{ Low, High float64 }{}
			if high >= y && y >= low && low > 0 && !math.IsInf(high, 1) { // a window of one step has no interval
				e.Low, e.High = y-low, high-y
			}
			points.YErrors = append(points.YErrors, e)
			least, most = min(least, x, y), max(most, x, y)
		}
		if len(points.XYs) == 0 {
			continue
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return nil, fmt.Errorf("draw outcomes: %w", err)
		}
		marks, err := plotter.NewScatter(points.XYs)
		if err != nil {
			return nil, fmt.Errorf("draw outcomes: %w", err)
		}
		colour := rankLine(run).Color
		bars.Color, bars.Width, bars.CapWidth = colour, vg.Points(0.6), vg.Points(3)
		shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
		marks.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(2.5),
			Shape: shapes[run/len(drawing.Palette)%len(shapes)]}
		p.Add(bars, marks)
		p.Legend.Add(s.Label(run), marks)
		found = true
	}
	if !found {
		return nil, nil
	}
	pad := 0.05 * (most - least + 0.1)
	least, most = max(least-pad, 0), most+pad
	line, err := plotter.NewLine(plotter.XYs{{X: least, Y: least}, {X: most, Y: most}})
	if err != nil {
		return nil, fmt.Errorf("draw outcomes: %w", err)
	}
	line.Width, line.Dashes = vg.Points(0.8), []vg.Length{4, 3}
	p.Add(line)
	p.Legend.Left = true
	p.X.Min, p.X.Max = least, most
	// leaves space for the legend; longer intervals are cut
	p.Y.Min, p.Y.Max = least, most+0.05*float64(len(s.Trials))*(most-least)
	return []analysis.Figure{{Title: title, Caption: outcomesCaption, Path: "outcomes.png"}}, drawing.Save(dir,
		"outcomes", drawing.Width, heightFor(len(s.Trials)), p)
}
