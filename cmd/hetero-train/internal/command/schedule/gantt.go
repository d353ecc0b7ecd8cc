package schedule

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// classNames contains the names of the classes of jobs in plots, by scheduler.Class.
var classNames = [scheduler.Classes]string{scheduler.Simulation: "simulation", scheduler.Learning: "machine learning",
	scheduler.Processing: "data processing"}

// mostGanttGPUs is the largest number of GPUs, and so of rows, with which a Gantt chart is readable.
const mostGanttGPUs = 256

// drawGantt draws which jobs use each GPU over time: one row per GPU, one bar per stay. The colour of a bar shows the
// class of the job. A bar of half height is a job that shares its GPU.
func drawGantt(path, title string, c *scheduler.Cluster, w *scheduler.Workload, r *scheduler.Result) error {
	if len(c.GPUs) > mostGanttGPUs {
		return exit.Usagef("--gantt: got a cluster of %d GPUs, want at most %d", len(c.GPUs), mostGanttGPUs)
	}
	scale, unit := 1.0, "s"
	switch {
	case r.End > 4*3600:
		scale, unit = 3600, "h"
	case r.End > 4*60:
		scale, unit = 60, "min"
	}
	p := drawing.NewPlot(title, "time, "+unit, "")
	lanes := lanesOf(r.Segments, len(c.GPUs))
	for class, name := range classNames {
		bars := &gantt{color: drawing.Palette[class]}
		for i, s := range r.Segments {
			if w.Kinds[w.Jobs[s.Job].Kind].Class != scheduler.Class(class) {
				continue
			}
			for k, g := range s.GPUs {
				l := lanes[i][k]
				bars.stays = append(bars.stays, bar{row: len(c.GPUs) - 1 - g, from: s.From / scale, to: s.To / scale,
					lane: l.lane, lanes: l.lanes, failed: s.Ended == scheduler.Failed})
			}
		}
		if len(bars.stays) > 0 {
			p.Add(bars)
			p.Legend.Add(name, bars)
		}
	}
	ticks := make([]plot.Tick, len(c.GPUs))
	for g := range c.GPUs {
		ticks[g] = plot.Tick{Value: float64(len(c.GPUs) - 1 - g), Label: c.GPUs[g].Name}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = -0.6, float64(len(c.GPUs))+2.4, 0, r.End/scale
	p.Legend.Left, p.Legend.ThumbnailWidth = true, vg.Points(14)
	height := max(drawing.Height, vg.Length(len(c.GPUs)+6)*0.45*vg.Centimeter)
	return exit.With(exit.IO, drawing.File(path, 1.6*drawing.Width, height, p))
}

// lane is the part that a stay fills in the row of one GPU.
type lane struct{ lane, lanes int }

// lanesOf returns the lane of each segment on each of its GPUs. A stay gets the first lane that is free at its start.
// It gets half a row if another job uses the GPU at the same time.
func lanesOf(all []scheduler.Segment, gpus int) [][]lane {
	type stay struct{ segment, k int }
	out := make([][]lane, len(all))
	on := make([][]stay, gpus)                          // stays on each GPU, in the order of their start
	ends := make([][scheduler.MaxSharing]float64, gpus) // end of the last stay, by GPU and lane
	for i, s := range all {
		out[i] = make([]lane, len(s.GPUs))
		for k, g := range s.GPUs {
			l := 0
			for l < scheduler.MaxSharing-1 && ends[g][l] > s.From {
				l++
			}
			ends[g][l] = s.To
			out[i][k] = lane{l, 1}
			for _, other := range on[g] {
				if o := all[other.segment]; o.From < s.To && s.From < o.To {
					out[i][k].lanes, out[other.segment][other.k].lanes = scheduler.MaxSharing, scheduler.MaxSharing
				}
			}
			on[g] = append(on[g], stay{i, k})
		}
	}
	return out
}

type bar struct {
	row         int
	from, to    float64
	lane, lanes int
	failed      bool
}

// gantt draws bars of one colour.
type gantt struct {
	color color.Color
	stays []bar
}

// Plot implements plot.Plotter.
func (g *gantt) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for _, s := range g.stays {
		part := 0.8 / float64(s.lanes)
		low := float64(s.row) - 0.4 + part*float64(s.lane)
		points := []vg.Point{{X: x(s.from), Y: y(low)}, {X: x(s.to), Y: y(low)}, {X: x(s.to), Y: y(low + part)},
			{X: x(s.from), Y: y(low + part)}}
		canvas.FillPolygon(g.color, points)
		edge := draw.LineStyle{Color: color.White, Width: vg.Points(0.3)}
		if s.failed {
			edge = draw.LineStyle{Color: color.Black, Width: vg.Points(1)}
		}
		canvas.StrokeLines(edge, append(points, points[0]))
	}
}

// Thumbnail implements plot.Thumbnailer.
func (g *gantt) Thumbnail(canvas *draw.Canvas) {
	r := canvas.Rectangle
	canvas.FillPolygon(g.color, []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}})
}
