package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// barFigure is a figure with one bar per policy.
type barFigure struct {
	name, title, axis, caption string
	value                      func(*analysis.PolicyResult) analysis.Estimate
	scale                      float64 // factor of the shown values; 100 shows a fraction as percent
	format                     string
	reference                  float64 // value of a horizontal line; 0: no line
	referenceName              string
}

var barFigures = []barFigure{
	{"throughput", "Throughput", "samples/s", "Samples of all ranks per second in the steady state.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Throughput }, 1, "%.4g", 0, ""},
	{"speedup", "Speed-up over none", "speed-up (ratio)", "Throughput divided by that of equal shares.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Speedup }, 1, "%.2fx", 1, "equal shares"},
	{"utilization", "Average utilization", "utilization (%)",
		"Mean over ranks and steps. For CPU ranks: the used fraction of the CPUs that the rank may use.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Utilization }, 1, "%.0f %%", 0, ""},
	{"scaling_efficiency", "Scaling efficiency", "throughput / sum of solo throughputs",
		"Throughput divided by the sum of the throughputs of the ranks alone.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Efficiency }, 1, "%.2f", 1, "ranks alone"},
	{"load_imbalance", "Load imbalance", "(max - min) / max of compute time (%)",
		"Of the ranks' own compute time, mean over steps; less is better.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Imbalance }, 100, "%.1f %%", 0, ""},
	{"share_of_oracle", "Fraction of the oracle", "time of the best split / time (%)",
		"Time of the best possible shares divided by the time of the actual shares, on the curves measured in the run.",
		func(p *analysis.PolicyResult) analysis.Estimate { return p.Oracle }, 100, "%.1f %%", 100, "oracle"},
}

// Comparison draws the figures of a comparison into dir. The returned paths start with the ID of the comparison,
// which must be the name of dir. dir must be in the folder of the report.
func Comparison(dir string, c *analysis.Comparison) ([]analysis.Figure, error) {
	var drawn []analysis.Figure
	keep := func(name, title, caption string) {
		drawn = append(drawn, analysis.Figure{Title: title, Caption: caption, Path: c.ID + "/" + name + ".png"})
	}
	save := func(name, title, caption string, p *plot.Plot, err error) error { // p is nil if no value is known
		if err != nil {
			return fmt.Errorf("draw %s of %s: %w", name, c.ID, err)
		}
		if p == nil {
			return nil
		}
		if err := drawing.Save(dir, name, drawing.Width, drawing.Height, p); err != nil {
			return err
		}
		keep(name, title, caption)
		return nil
	}
	for _, f := range barFigures {
		p, err := f.draw(c)
		if err := save(f.name, f.title, f.caption, p, err); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		name, title, axis string
		x                 func(analysis.CurvePoint) float64
	}{
		{"loss_by_step", "Training loss over steps", "step", func(p analysis.CurvePoint) float64 {
			return float64(p.Step)
		}},
		{"loss_by_time", "Training loss over time", "time since the start of training (s)",
			func(p analysis.CurvePoint) float64 { return p.Seconds }},
	} {
		p, err := lossPlot(c, f.title, f.axis, f.x)
		const caption = "Mean of 10 steps, mean over the runs of a policy; the whole run."
		if err := save(f.name, f.title, caption, p, err); err != nil {
			return nil, err
		}
	}
	if c.Ranks < 2 {
		return drawn, nil
	}
	plots, err := sharePlots(c)
	if err != nil {
		return nil, fmt.Errorf("draw shares of %s: %w", c.ID, err)
	}
	if err := drawing.Save(dir, "shares", drawing.Width, vg.Length(len(plots))*6*vg.Centimeter, plots...); err != nil {
		return nil, err
	}
	keep("shares", "Shares of the batch over time", "Samples of each rank in each step, first run of each policy.")
	return drawn, nil
}

// draw returns the figure, or nil if no value is known.
func (f barFigure) draw(c *analysis.Comparison) (*plot.Plot, error) {
	var bars []bar
	for _, p := range c.Policies {
		e := f.value(p)
		bars = append(bars, bar{p.Policy, p.Policy, analysis.Estimate{Value: e.Value * f.scale, Low: e.Low * f.scale,
			High: e.High * f.scale}})
	}
	if !known(bars) || f.name == "speedup" && len(bars) < 2 {
		return nil, nil
	}
	p := drawing.NewPlot(f.title, "", f.axis)
	if err := addBars(p, bars, f.format); err != nil {
		return nil, err
	}
	if f.reference > 0 {
		return p, addReference(p, f.reference, f.referenceName)
	}
	return p, nil
}

// lossPlot returns the plot of the losses, or nil if no losses are known.
func lossPlot(c *analysis.Comparison, title, axis string, x func(analysis.CurvePoint) float64) (*plot.Plot, error) {
	p := drawing.NewPlot(title, axis, "training loss")
	drawn := false
	for _, policy := range c.Policies {
		var points plotter.XYs
		for _, point := range policy.Curve {
			points = append(points, plotter.XY{X: x(point), Y: point.Loss})
		}
		if len(points) < 2 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.LineStyle = lineOf(policy.Policy)
		p.Add(line)
		p.Legend.Add(policy.Policy, line)
		drawn = true
	}
	if !drawn {
		return nil, nil
	}
	p.X.Min = 0
	return p, nil
}

// sharePlots returns one plot of shares per policy. All plots have the same axes.
func sharePlots(c *analysis.Comparison) ([]*plot.Plot, error) {
	var plots []*plot.Plot
	most, last := 0.0, 0.0
	for _, policy := range c.Policies {
		run := policy.Runs[0]
		p := drawing.NewPlot(fmt.Sprintf("%s (seed %s)", policy.Policy, run.Seed), "step", "samples of a step")
		for rank := range run.Ranks {
			var points plotter.XYs
			for _, step := range run.Steps {
				points = append(points, plotter.XY{X: float64(step.Iteration), Y: float64(step.Ranks[rank].Samples)})
				most, last = max(most, float64(step.Ranks[rank].Samples)), max(last, float64(step.Iteration))
			}
			if len(points) < 2 {
				continue
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return nil, err
			}
			line.StepStyle, line.LineStyle = plotter.PreStep, rankLine(rank)
			p.Add(line)
			if rank < maxLegend {
				p.Legend.Add(rankName(c, rank), line)
			}
		}
		plots = append(plots, p)
	}
	for _, p := range plots {
		p.X.Min, p.X.Max = 0, math.Ceil(last*1.3) // leaves space for the legend
		p.Y.Min, p.Y.Max = 0, 1.08*most
	}
	return plots, nil
}

// maxLegend is the largest number of ranks in a legend. More ranks would fill the figure.
const maxLegend = 8

func rankName(c *analysis.Comparison, rank int) string {
	if rank < len(c.Devices) {
		return fmt.Sprintf("%d: %s", rank, c.Devices[rank])
	}
	return fmt.Sprintf("rank %d", rank)
}
