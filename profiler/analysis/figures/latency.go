package figures

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
	"github.com/hetero-train/hetero-train/profiler/stats"
)

// latencyBins is the number of bins in a histogram.
const latencyBins = 60

// Latency draws the histogram of a run's step times as a PNG, with one colour per rank. If there are several ranks, it
// draws the histogram of the all-reduce times below the first one.
func Latency(w io.Writer, s *analysis.Summary) error {
	steps := make([][]float32, len(s.PerRank))
	sums := make([][]float32, len(s.PerRank))
	for i := range s.PerRank {
		steps[i], sums[i] = s.PerRank[i].Latencies()
	}
	top, err := histogram(fmt.Sprintf("%s: step latency", s.Run), "step time measured by each rank (ms)", steps)
	if err != nil {
		return fmt.Errorf("draw the histogram of latencies: %w", err)
	}
	plots := []*plot.Plot{top}
	if s.Ranks > 1 {
		below, err := histogram("All-reduce latency",
			"time of the gradient all-reduces of a step, hidden or exposed (ms)", sums)
		if err != nil {
			return fmt.Errorf("draw the histogram of latencies: %w", err)
		}
		plots = append(plots, below)
	}
	if _, err := drawing.PNG(drawing.Width, vg.Length(len(plots))*drawing.Height, plots...).WriteTo(w); err != nil {
		return fmt.Errorf("draw the histogram of latencies: %w", err)
	}
	return nil
}

// histogram counts the times of each rank in common bins. The last bin contains the slowest half percent of all times.
// Without this rule, a few slow steps would compress all other steps into a single bar.
func histogram(title, axis string, seconds [][]float32) (*plot.Plot, error) {
	p := drawing.NewPlot(title, axis, "steps")
	var all []float32
	for _, values := range seconds {
		all = append(all, values...)
	}
	if len(all) == 0 {
		return p, nil
	}
	slices.Sort(all)
	low, high := 1e3*float64(all[0]), 1e3*float64(all[int(math.Ceil(0.995*float64(len(all))))-1])
	if high <= low {
		high = low*1.01 + 1e-6
	}
	bin := (high - low) / latencyBins
	most := 0.0
	for rank, values := range seconds {
		if len(values) == 0 {
			continue
		}
		outline := plotter.XYs{{X: low, Y: 0}}
		for i, n := range counts(values, low, bin) {
			outline = append(outline, plotter.XY{X: low + float64(i)*bin, Y: n},
				plotter.XY{X: low + float64(i+1)*bin, Y: n})
			most = max(most, n)
		}
		outline = append(outline, plotter.XY{X: high, Y: 0})
		area, err := plotter.NewPolygon(outline)
		if err != nil {
			return nil, err
		}
		c := drawing.Palette[rank%len(drawing.Palette)]
		area.LineStyle = rankLine(rank)
		area.Color = color.NRGBA{c.R, c.G, c.B, 0x40}
		p.Add(area)
		if rank < maxLegend {
			p.Legend.Add(fmt.Sprintf("rank %d: median %.4g ms", rank, 1e3*float64(stats.Median(values))), area)
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, 0, 1.25*most // leaves space for the legend
	return p, nil
}

// counts returns the number of values in each bin. values are in seconds. The bins have width bin and start at low,
// in milliseconds.
func counts(values []float32, low, bin float64) []float64 {
	n := make([]float64, latencyBins)
	for _, v := range values {
		n[min(max(int((1e3*float64(v)-low)/bin), 0), latencyBins-1)]++
	}
	return n
}
