package schedule

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// mostGanttJobs is the largest number of jobs for which --plots draws Gantt charts. With more jobs, bars would be
// narrower than a pixel.
const mostGanttJobs = 1000

// ganttFiles returns the name of the Gantt file of each policy. The names are short enough for all file systems, and
// all differ. A name that would equal an earlier one gets a number at its end.
func ganttFiles(policies []string) []string {
	const most = 100 // largest length of a policy's name in a file name, in bytes
	used := map[string]bool{}
	files := make([]string, len(policies))
	for i, policy := range policies {
		name := strings.NewReplacer("/", "-", `\`, "-", ":", "-").Replace(policy)
		if len(name) > most { // keep the end, in which paths differ most
			name = "dqn-" + strings.ToValidUTF8(name[len(name)-most:], "")
		}
		file := name
		for n := 2; used[strings.ToLower(file)]; n++ {
			file = fmt.Sprintf("%s-%d", name, n)
		}
		used[strings.ToLower(file)] = true
		files[i] = "gantt-" + file + ".svg"
	}
	return files
}

// barsOf returns a plot for each main result: one bar per policy, with its interval.
func barsOf(s *compare.Study) ([]*plot.Plot, error) {
	var plots []*plot.Plot
	for _, f := range []struct {
		title  string
		of     func(*compare.Row) compare.Estimate
		scale  float64
		digits int
	}{
		{"mean completion time, s", func(r *compare.Row) compare.Estimate { return r.Completion }, 1, 0},
		{"throughput in the steady window, jobs/h",
			func(r *compare.Row) compare.Estimate { return r.SteadyThroughput }, 1, 2},
		{"utilization in the steady window, %",
			func(r *compare.Row) compare.Estimate { return r.SteadyUtilization }, 100, 1},
	} {
		p := drawing.NewPlot(f.title, "", "")
		names, top := make([]string, len(s.Rows)), 0.0
		for i := range s.Rows {
			names[i] = s.Rows[i].Policy
			e := f.of(&s.Rows[i])
			if math.IsNaN(e.Mean) { // the run has no steady window
				continue
			}
			high, err := addBar(p, i, f.scale*e.Mean, f.scale*e.Low, f.scale*e.High, f.digits)
			if err != nil {
				return nil, err
			}
			top = max(top, high)
		}
		p.NominalX(names...)
		p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
		if p.Y.Min, p.Y.Max = 0, 1.16*top; top == 0 {
			p.Y.Max = 1
		}
		plots = append(plots, p)
	}
	return plots, nil
}

// addBar draws a bar at x with its interval and its value, and returns the top of the bar. If there is no interval, low
// and high are NaN.
func addBar(p *plot.Plot, x int, value, low, high float64, digits int) (top float64, err error) {
	bar, err := plotter.NewBarChart(plotter.Values{value}, vg.Points(26))
	if err != nil {
		return 0, err
	}
	bar.XMin, bar.Color, bar.LineStyle.Width = float64(x), drawing.Palette[1], vg.Points(0.5)
	p.Add(bar)
	top = value
	if high > low {
		whisker, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{plotter.XYs{{X: float64(x), Y: value}}, plotter.YErrors{{Low: value - low, High: high - value}}})
		if err != nil {
			return 0, err
		}
		whisker.Width, whisker.CapWidth = vg.Points(1.2), vg.Points(8)
		p.Add(whisker)
		top = high
	}
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: float64(x), Y: top}},
		Labels: []string{figure(value, digits)}})
	if err != nil {
		return 0, err
	}
	label.Offset = vg.Point{Y: vg.Points(3)}
	for i := range label.TextStyle {
		style := &label.TextStyle[i]
		style.Font.Variant, style.Font.Size, style.XAlign = "Sans", vg.Points(8), text.XCenter
	}
	p.Add(label)
	return top, nil
}

// leastWait is the shortest wait that a plot shows, in seconds. A logarithmic axis has no 0.
const leastWait = 1

// waitsOf returns the plot of the longest waiting times over the number of GPUs of a job, with one line per policy.
func waitsOf(s *compare.Study) (*plot.Plot, error) {
	p := drawing.NewPlot("Longest wait by number of GPUs of the job", "GPUs", "longest wait, s (1 s or more)")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = leastWait, 10*leastWait
	place := map[int]int{} // place of each number of GPUs on the axis
	var names []string
	for _, g := range s.Rows[0].Gangs { // equal for all policies, because all run the same jobs
		place[g.GPUs] = len(names)
		names = append(names, fmt.Sprint(g.GPUs))
	}
	for i, r := range s.Rows {
		points := make(plotter.XYs, len(r.Gangs))
		for k, g := range r.Gangs {
			points[k] = plotter.XY{X: float64(place[g.GPUs]), Y: max(leastWait, g.Worst)}
			p.Y.Max = max(p.Y.Max, 3*g.Worst)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		round := i / len(drawing.Palette) // after the last colour, the colours repeat with another line style
		line.Color, line.Width = drawing.Palette[i%len(drawing.Palette)], vg.Points(1.5)
		if round > 0 {
			line.Dashes = []vg.Length{vg.Points(6), vg.Points(3 * float64(round))}
		}
		marks.Color, marks.Radius, marks.Shape = line.Color, vg.Points(3), draw.CircleGlyph{}
		p.Add(line, marks)
		p.Legend.Add(r.Policy, line, marks)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.3, float64(len(names))+0.6 // space for the legend
	return p, nil
}
