package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// report prints the table and writes the output files.
func (s *sweep) report(complete bool) error {
	s.curves = slices.DeleteFunc(s.curves, func(c *curve) bool { return len(c.Points) == 0 })
	for _, c := range s.curves {
		c.conclude()
	}
	files, err := s.write(complete)
	if err != nil {
		return err
	}
	if s.flags.json {
		return show.JSON(s.app.Env.Stdout, s.result(complete))
	}
	if err := s.print(complete); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.app.Env.Stdout, "written: %s\n", files)
	return err
}

// result returns the JSON form of the sweep.
func (s *sweep) result(complete bool) map[string]any {
	out := map[string]any{"schema_version": 1, "model": s.flags.model, "rounds": s.flags.rounds,
		"seconds_per_measurement": s.flags.seconds,
		"knee_fraction":           kneeFraction, "complete": complete, "curves": s.curves}
	for key, v := range s.facts {
		out[key] = v
	}
	s.flags.describeSamples(out)
	for _, c := range s.curves {
		for _, p := range c.Points {
			if s.flags.text() {
				p.Tokens = p.Rate * float64(s.flags.length)
			}
		}
	}
	return out
}

// print writes the table.
func (s *sweep) print(complete bool) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s on %s (%s)", s.flags.model, s.flags.shape(), s.facts["device"], s.facts["device_model"])
	fmt.Fprintf(&text, "; %s of %g s for each batch size\n", show.Count(s.flags.rounds, "round"), s.flags.seconds)
	rate := "samples/s"
	if s.flags.text() {
		rate = "tokens/s"
	}
	for _, c := range s.curves {
		fmt.Fprintf(&text, "\n%s\n", c.name())
		t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "batch\tstep ms\tof the rounds\t%s\tof the best\tmemory GiB\trounds\t\t\n", rate)
		most := best(c.Points)
		for _, p := range c.Points {
			speed, note := p.Rate, ""
			if s.flags.text() {
				speed *= float64(s.flags.length)
			}
			if p.Batch == c.Knee {
				note = "knee"
			}
			fmt.Fprintf(t, "%d\t%.3g\t%.3g … %.3g\t%.5g\t%.0f %%\t%.2f\t%d\t%s\t\n", p.Batch, 1e3*p.Seconds, 1e3*p.Low,
				1e3*p.High, speed, 100*p.Rate/most.Rate, show.GiB(p.PeakBytes), p.Rounds, note)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, n := range c.Skipped {
			fmt.Fprintf(&text, "%d: does not fit in the memory\n", n)
		}
		fmt.Fprintf(&text, "knee: batch %d reaches %.0f %% of the best throughput (batch %d)\n", c.Knee,
			100*kneeFraction, c.Best)
		fmt.Fprintf(&text, "largest batch that fits in %.2f GiB: %d\n", show.GiB(c.MemoryBytes), c.LargestBatch)
		if p := c.noisiest(); p.High > noisy*p.Low {
			fmt.Fprintf(&text,
				"the rounds of batch %d differ by a factor of %.2g: other processes probably used the device\n",
				p.Batch, p.High/p.Low)
		}
		if c.End != "" {
			fmt.Fprintf(&text, "no larger batch measured: %s\n", c.End)
		}
	}
	if !complete {
		text.WriteString("\ninterrupted: the table contains what was measured so far\n")
	}
	_, err := io.WriteString(s.app.Env.Stdout, text.String())
	return err
}

// write writes all output files. It returns their names as one text.
func (s *sweep) write(complete bool) (string, error) {
	fail := func(err error) (string, error) {
		err = fmt.Errorf("bench sweep: --output-dir: %w", err)
		return "", exit.With(exit.FolderCode(err), err)
	}
	if err := os.MkdirAll(s.flags.dir, 0o755); err != nil {
		return fail(err)
	}
	name := filepath.Join(s.flags.dir, s.flags.model)
	err := experiment.Replace(name+".json", func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s.result(complete))
	})
	if err != nil {
		return fail(err)
	}
	if err := experiment.Replace(name+".csv", s.writeCSV); err != nil {
		return fail(err)
	}
	plots, err := s.plots()
	if err != nil {
		return fail(err)
	}
	if err := drawing.Save(s.flags.dir, s.flags.model, drawing.Width, 2*drawing.Height, plots...); err != nil {
		return fail(err)
	}
	return fmt.Sprintf("%s.json, .csv, .png, .svg", name), nil
}

// writeCSV writes one line per curve and batch size.
func (s *sweep) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	// out.Flush below reports the errors of Write
	out.Write([]string{"model", "precision", "threads", "batch_size", "step_s", "step_low_s", "step_high_s",
		"samples_per_s", "steps", "rounds", "peak_memory_bytes", "knee", "largest_batch"})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, c := range s.curves {
		for _, p := range c.Points {
			out.Write([]string{s.flags.model, c.Precision, strconv.Itoa(c.Threads), strconv.Itoa(p.Batch),
				number(p.Seconds), number(p.Low), number(p.High), number(p.Rate),
				strconv.Itoa(p.Steps), strconv.Itoa(p.Rounds), strconv.FormatInt(p.PeakBytes, 10),
				strconv.FormatBool(p.Batch == c.Knee), strconv.Itoa(c.LargestBatch)})
		}
	}
	out.Flush()
	return out.Error()
}

// plots draws throughput and step time over the batch size, with the spread of the rounds.
func (s *sweep) plots() ([]*plot.Plot, error) {
	rate, unit := 1.0, "samples/s"
	if s.flags.text() {
		rate, unit = float64(s.flags.length), "tokens/s"
	}
	above := drawing.NewPlot(fmt.Sprintf("%s, %s: throughput (circle: knee)", s.flags.model, s.flags.shape()),
		"batch size", unit)
	below := drawing.NewPlot("Step latency", "batch size", "ms")
	for i, c := range s.curves {
		speed, latency := spread{}, spread{}
		for _, p := range c.Points {
			n := rate * float64(p.Batch)
			speed.add(p.Batch, n/p.Seconds, n/p.High, n/p.Low)
			latency.add(p.Batch, 1e3*p.Seconds, 1e3*p.Low, 1e3*p.High)
		}
		if err := speed.draw(above, i, c); err != nil {
			return nil, err
		}
		if err := latency.draw(below, i, c); err != nil {
			return nil, err
		}
	}
	s.frame(above)
	s.frame(below)
	above.Y.Min, below.Y.Min = 0, 0
	above.Y.Max *= 1.2 // leaves space for the legend
	below.Legend.Left, above.Legend.Left = true, true
	return []*plot.Plot{above, below}, nil
}

// frame sets up the logarithmic axis of a plot and labels its batch sizes.
func (s *sweep) frame(p *plot.Plot) {
	var ticks []plot.Tick
	low, high := math.Inf(1), 0.0
	for _, c := range s.curves {
		for _, at := range c.Points {
			ticks = append(ticks, plot.Tick{Value: float64(at.Batch), Label: strconv.Itoa(at.Batch)})
			low, high = min(low, float64(at.Batch)), max(high, float64(at.Batch))
		}
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = low/1.2, high*1.2
}

// spread is a line of values with the spread of the rounds.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

// add adds a value, with the lowest and the highest value of the rounds.
func (s *spread) add(batch int, value, low, high float64) {
	s.XYs = append(s.XYs, plotter.XY{X: float64(batch), Y: value})
	s.YErrors = append(s.YErrors, struct{ Low, High float64 }{max(value-low, 0), max(high-value, 0)})
}

// draw adds the line to a plot, with whiskers for the spread and a circle at the knee.
func (s *spread) draw(p *plot.Plot, i int, c *curve) error {
	color := drawing.Palette[(i+4)%len(drawing.Palette)] // the first color is blue
	line, err := plotter.NewLine(s.XYs)
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: color, Width: vg.Points(1.6)}
	bars, err := plotter.NewYErrorBars(s)
	if err != nil {
		return err
	}
	bars.LineStyle.Color = color
	p.Add(line, bars)
	p.Legend.Add(c.name(), line)
	for _, at := range s.XYs {
		if int(at.X) != c.Knee {
			continue
		}
		knee, err := plotter.NewScatter(plotter.XYs{at})
		if err != nil {
			return err
		}
		knee.GlyphStyle = draw.GlyphStyle{Color: color, Radius: vg.Points(5), Shape: draw.RingGlyph{}}
		p.Add(knee)
	}
	return nil
}
