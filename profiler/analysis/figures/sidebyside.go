package figures

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// SideBySide draws one figure for each curve of the runs into dir, with one line per run. A second figure shows the
// training loss over training time. One figure shows the changes of shares of all runs. The returned paths are relative
// to dir.
func SideBySide(dir string, s *analysis.SideBySide) ([]analysis.Figure, error) {
	var drawn []analysis.Figure
	labels := legendLabels(s)
	add := func(key, suffix, axis, caption string, x func(analysis.TrialPoint) float64) error {
		p, title, err := trialPlot(s, labels, key, axis, x)
		if err != nil {
			return fmt.Errorf("draw %s: %w", key, err)
		}
		if p == nil {
			return nil
		}
		name := key + suffix
		if suffix == "_by_time" {
			title += " over training time"
		}
		drawn = append(drawn, analysis.Figure{Title: title, Caption: caption, Path: name + ".png"})
		return drawing.Save(dir, name, drawing.Width, heightFor(len(s.Trials)), p)
	}
	for _, key := range s.CurveKeys() {
		caption := "The horizontal axis is the step."
		if strings.HasPrefix(key, "eval_") {
			caption += " Each point is an evaluation."
		} else {
			caption += " In long runs, a point is the mean of successive steps."
		}
		if err := add(key, "_by_step", "step", caption, func(p analysis.TrialPoint) float64 {
			return float64(p.Step)
		}); err != nil {
			return nil, err
		}
		if key != "loss" {
			continue
		}
		if err := add(key, "_by_time", "training time (s)", "The horizontal axis is the training time, without pauses.",
			func(p analysis.TrialPoint) float64 { return float64(p.Seconds) }); err != nil {
			return nil, err
		}
	}
	changes, err := outcomes(dir, s, labels)
	return append(drawn, changes...), err
}

// trialPlot returns the plot of one curve of each run, and its title. It returns nil if no run has a known value. A
// curve of one point, such as a single evaluation, is drawn as a mark.
func trialPlot(s *analysis.SideBySide, labels []string, key, axis string,
	x func(analysis.TrialPoint) float64) (*plot.Plot, string, error) {
	var p *plot.Plot
	title := ""
	for run := range s.Trials {
		c := s.Curve(run, key)
		if c == nil {
			continue
		}
		if p == nil {
			title = c.Title
			label := c.Title
			if c.Unit != "" {
				label += " (" + c.Unit + ")"
			}
			p = drawing.NewPlot(c.Title, axis, label)
		}
		var points plotter.XYs
		for _, point := range c.Points {
			if at := x(point); !math.IsNaN(at) && !math.IsNaN(float64(point.Value)) &&
				!math.IsInf(float64(point.Value), 0) {
				points = append(points, plotter.XY{X: at, Y: float64(point.Value)})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, "", err
		}
		line.LineStyle = rankLine(run)
		marks.Color = line.Color
		p.Add(line)
		if len(points) <= mostMarks {
			p.Add(marks)
			p.Legend.Add(labels[run], line, marks)
		} else {
			p.Legend.Add(labels[run], line)
		}
	}
	if p == nil || p.X.Min > p.X.Max {
		return nil, "", nil
	}
	p.X.Min = 0
	if p.Y.Min == p.Y.Max { // constant values: the axis gets a length
		pad := max(0.01*math.Abs(p.Y.Max), 1e-9)
		p.Y.Min, p.Y.Max = p.Y.Min-pad, p.Y.Max+pad
	}
	p.Y.Max += 0.07 * float64(len(s.Trials)+1) * (p.Y.Max - p.Y.Min) // leaves space for the legend
	return p, title, nil
}

// legendLabels returns the labels of the runs in a legend. A label lists the values of the settings that differ between
// the runs. If a label is so long that it would cover the curves, the names of the runs are the labels, unless these
// names are even longer.
func legendLabels(s *analysis.SideBySide) []string {
	const wide = 32 // characters
	labels, names := make([]string, len(s.Trials)), make([]string, len(s.Trials))
	longest, longestName := 0, 0
	for run := range s.Trials {
		labels[run], names[run] = s.Label(run), s.Name(run)
		longest = max(longest, utf8.RuneCountInString(labels[run]))
		longestName = max(longestName, utf8.RuneCountInString(names[run]))
	}
	if longest > wide && longestName < longest {
		return names
	}
	return labels
}

// heightFor returns the height of a figure with one line per run. A legend of up to `usual` runs fits into the usual
// height. Each further run needs one more line of text.
func heightFor(runs int) vg.Length {
	const usual, legendLine = 8, 0.043 // number of runs; height of a legend line / usual height
	return drawing.Height * (1 + legendLine*vg.Length(max(0, runs-usual)))
}

// The points of a curve are marked if it has at most mostMarks points. Marks make single evaluations visible.
const mostMarks = 20
