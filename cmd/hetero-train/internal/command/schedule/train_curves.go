package schedule

import (
	"fmt"
	"math"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/profiler/drawing"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// boardFolder is the name of the folder of TensorBoard's event files, in the output folder of a training run.
const boardFolder = "tensorboard"

// boardEvery is the minimum number of episodes between two points in TensorBoard. With it, a run of a million episodes
// has 50,000 points.
const boardEvery = 20

// points writes the progress of a training run for TensorBoard. The steps in TensorBoard are episodes.
type points struct {
	out  *trace.Board
	rate dqn.Schedule
	next int64 // number of episodes after which the next point is due
}

// openPoints opens the event files of a training run whose output folder is locked. A run that resumes replaces the
// points after its checkpoint.
func openPoints(a *cli.App, output string, learner *dqn.Learner, resumed bool) (*points, error) {
	done := learner.Progress().Episodes
	out, err := trace.OpenBoard(filepath.Join(output, boardFolder),
		trace.BoardOptions{Fresh: !resumed, Keep: done, OnFault: func(err error) {
			if err != nil {
				a.WarnOf(fmt.Sprintf("TensorBoard events cannot be written and are kept in memory: %v", err))
			}
		}})
	if err != nil {
		return nil, exit.With(exit.IO, fmt.Errorf("schedule train: %w", err))
	}
	return &points{out: out, rate: learner.Options().Rate, next: done + 1}, nil
}

// add writes a point if enough episodes have ended since the last point.
func (b *points) add(p dqn.Progress) {
	if p.Episodes < b.next || math.IsNaN(p.Return) {
		return
	}
	b.next = p.Episodes + boardEvery
	b.out.Scalars(p.Episodes, time.Now(), []trace.Scalar{
		{Tag: "dqn/reward", Value: p.Return},
		{Tag: "dqn/error", Value: p.Error},
		{Tag: "dqn/epsilon", Value: p.Explore},
		{Tag: "dqn/learning_rate", Value: b.rate.At(p.Episodes)},
		{Tag: "dqn/updates", Value: float64(p.Updates)},
	})
}

// close writes the remaining events and closes the event files.
func (b *points) close(a *cli.App) error {
	err := b.out.Close()
	if n := b.out.Dropped(); n > 0 {
		a.WarnOf(fmt.Sprintf("%d TensorBoard events were lost, because they could not be written to the disk", n))
	}
	if err != nil {
		return exit.With(exit.IO, fmt.Errorf("schedule train: %w", err))
	}
	return nil
}

// drawCurve writes the plot of --plots into a folder: the training curve since the first episode.
func drawCurve(a *cli.App, learner *dqn.Learner, folder string) error {
	points := learner.Curve()
	if len(points) < 2 {
		a.WarnOf(fmt.Sprintf("--plots: leaving out the training curve: got %d points, want at least 2; use a larger --episodes",
			len(points)))
		return nil
	}
	plots, err := curvesOf(points, learner.Options().Rate)
	if err == nil {
		err = drawing.Save(folder, "training", drawing.Width, 2.8*drawing.Height, plots...)
	}
	if err != nil {
		return exit.With(exit.IO, fmt.Errorf("schedule train: --plots: %w", err))
	}
	return nil
}

// curvesOf returns one plot for each quantity of a training curve.
func curvesOf(points []dqn.Point, rate dqn.Schedule) ([]*plot.Plot, error) {
	var plots []*plot.Plot
	for i, f := range []struct {
		title string
		of    func(dqn.Point) float64
	}{
		{"reward of an episode, mean of the last 100", func(p dqn.Point) float64 { return p.Return }},
		{"temporal-difference error, moving average", func(p dqn.Point) float64 { return p.Error }},
		{"probability of a random action", func(p dqn.Point) float64 { return p.Explore }},
		{"learning rate", func(p dqn.Point) float64 { return rate.At(p.Episodes) }},
	} {
		xys := make(plotter.XYs, len(points))
		for k, p := range points {
			xys[k] = plotter.XY{X: float64(p.Episodes), Y: f.of(p)}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.title, err)
		}
		line.Color, line.Width = drawing.Palette[4], vg.Points(1.5)
		p := drawing.NewPlot(f.title, "", "")
		if p.Add(line); i > 0 {
			p.Y.Min = 0
		}
		if i == 3 {
			p.X.Label.Text = "episodes"
		}
		plots = append(plots, p)
	}
	return plots, nil
}
