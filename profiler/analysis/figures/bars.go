package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// bar is a value with its interval.
type bar struct {
	label    string // text below the bar
	policy   string
	estimate analysis.Estimate
}

// addBars draws bars with whiskers at 0, 1, 2, …. It writes each value above its whisker in the given format.
func addBars(p *plot.Plot, bars []bar, format string) error {
	names, top := make([]string, len(bars)), 0.0
	for i, b := range bars {
		names[i] = b.label
		if !b.estimate.Known() {
			if err := addText(p, float64(i), 0, "unknown", vg.Points(9)); err != nil {
				return err
			}
			continue
		}
		if err := addBar(p, b, float64(i), vg.Points(44), vg.Points(10), format); err != nil {
			return err
		}
		top = max(top, b.estimate.High, b.estimate.Value)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(bars))-0.4
	p.Y.Min, p.Y.Max = 0, 1.14*top // leaves space for the values above the bars
	return nil
}

// addBar draws one bar with its whisker and value.
func addBar(p *plot.Plot, b bar, x float64, width, textSize vg.Length, format string) error {
	chart, err := plotter.NewBarChart(plotter.Values{b.estimate.Value}, width)
	if err != nil {
		return err
	}
	chart.XMin, chart.Color, chart.LineStyle.Width = x, colorOf(b.policy), vg.Points(0.5)
	p.Add(chart)
	point := plotter.XYs{{X: x, Y: b.estimate.Value}}
	if b.estimate.High > b.estimate.Low {
		// An estimate may be outside its percentile interval. The whisker then has length 0 on this side.
		whisker, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{point, plotter.YErrors{
			{Low: max(b.estimate.Value-b.estimate.Low, 0), High: max(b.estimate.High-b.estimate.Value, 0)}}})
		if err != nil {
			return err
		}
		whisker.Width, whisker.CapWidth = vg.Points(1.2), vg.Points(9)
		p.Add(whisker)
	}
	return addText(p, x, max(b.estimate.Value, b.estimate.High), fmt.Sprintf(format, b.estimate.Value), textSize)
}

// addText writes a text above a point.
func addText(p *plot.Plot, x, y float64, words string, size vg.Length) error {
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{words}})
	if err != nil {
		return err
	}
	label.Offset = vg.Point{Y: vg.Points(4)}
	for i := range label.TextStyle {
		label.TextStyle[i].Font.Variant, label.TextStyle[i].Font.Size, label.TextStyle[i].XAlign = "Sans", size,
			text.XCenter
	}
	p.Add(label)
	return nil
}

// addReference draws a dashed line with a label across all bars at y.
func addReference(p *plot.Plot, y float64, name string) error {
	line, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: y}, {X: p.X.Max, Y: y}})
	if err != nil {
		return err
	}
	line.LineStyle.Width, line.LineStyle.Dashes = vg.Points(0.8), []vg.Length{4, 3}
	p.Add(line)
	p.Legend.Add(name, line)
	p.Y.Max = math.Max(p.Y.Max, 1.22*y)
	return nil
}

func known(bars []bar) bool {
	for _, b := range bars {
		if b.estimate.Known() {
			return true
		}
	}
	return false
}
