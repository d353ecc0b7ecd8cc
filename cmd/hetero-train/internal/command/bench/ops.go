package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// opTime contains the time of one launch in a step, or of all launches of one kind of op.
type opTime struct {
	Name    string  `json:"name"`
	Op      string  `json:"op"`
	Phase   string  `json:"phase,omitempty"`
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"` // time of these launches in one step; median over the steps
	FLOPs   int64   `json:"flops"`
	Bytes   int64   `json:"bytes"` // size of all operands; each operand counts once
	// LimitSeconds is the minimum time on this hardware. It is the larger of two times: the arithmetic at peak speed,
	// and the memory traffic at the bandwidth of a copy.
	LimitSeconds float64 `json:"limit_seconds"`
}

func newBenchOps(a *cli.App) *cobra.Command {
	f := new(modelFlags)
	var all bool
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Time every op of a model against the limits of the hardware",
		Long: `Time every op of one training step and compare it with its limit.

The limit of an op is the longer of two times, both from rates measured in the same run:

  arithmetic  time for the operations of the op, at the peak rate
  memory      time to read or write each operand once, at the bandwidth of a copy

An op whose operands stay in a cache can be faster than its limit. On a GPU, the GPU's clock measures the times; for
an op shorter than about 10 us, this time is the launch time, not the compute time.`,
		Example: `  hetero-train bench ops --model resnet50 --image-size 32 --batch-size 128
  hetero-train bench ops --model resnet50 --precision bf16 --all --json`,
		Args: cli.NoArguments,
	}
	f.add(cmd, a.Env)
	cmd.Flags().BoolVar(&all, "all", false, "print every launch instead of one total time per kind of op")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		b, err := f.open(c.Context())
		if err != nil {
			return err
		}
		defer b.closeAll()
		m, ok := b.device.(device.PeakMeasurer)
		if !ok {
			return exit.Usagef("bench ops: device %s cannot measure its limits", b.device.Info().Name)
		}
		limits, err := measurePeaks(a, m)
		if err != nil {
			return exit.With(exit.Device, err)
		}
		// The warm-up steps bring data and parameters into memory.
		b.progress = stepProgress(a, f.warmup, f.steps)
		if _, err := b.run(c.Context(), func(replica.StepResult, time.Duration) {}); err != nil {
			return exit.With(exit.Device, err)
		}
		ops, err := b.timeOps(c.Context(), limits, opProgress(a, f.steps))
		if err != nil {
			return exit.With(exit.Device, err)
		}
		if !all {
			ops = byKind(ops)
		}
		if f.json {
			out := deviceFacts(b.device.Info())
			out["model"], out["precision"], out["batch_size"] = f.model, b.precision.String(), f.batch
			f.describeSamples(out)
			out["peak_gflops"], out["copy_gbytes_per_second"], out["ops"] = limits[devices.PeakOf(b.device,
				b.precision)].PerSecond/1e9, limits[device.PeakCopy].PerSecond/1e9, ops
			return show.JSON(a.Env.Stdout, out)
		}
		return writeOps(a.Env.Stdout, ops)
	}
	return cmd
}

// opProgress returns a function that prints the number of steps in which every op was timed, at most once per
// progressInterval.
func opProgress(a *cli.App, steps int) func(done int) {
	a.Progress(fmt.Sprintf("timing every op in %d steps", steps))
	said := time.Now()
	return func(done int) {
		if time.Since(said) >= progressInterval {
			said = time.Now()
			a.Progress(fmt.Sprintf("timed every op in step %d/%d", done, steps))
		}
	}
}

// timeOps executes the plan and measures the time of each launch. It calls progress after each step.
func (b *benchmark) timeOps(ctx context.Context, limits map[device.Peak]device.Reached, progress func(done int)) (
	[]opTime, error) {
	launches := b.replica.Plan().Launches()
	runs := make([][]time.Duration, b.flags.steps)
	for i := range runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		runs[i] = make([]time.Duration, len(launches))
		if err := b.replica.RunTimed(runs[i]); err != nil {
			return nil, err
		}
		progress(i + 1)
	}
	ops := make([]opTime, len(launches))
	one := make([]time.Duration, len(runs))
	for i, l := range launches {
		for r := range runs {
			one[r] = runs[r][i]
		}
		slices.Sort(one)
		o := opTime{Name: l.Name, Op: l.Op.Kind(), Phase: l.Phase, Count: 1, Seconds: one[len(one)/2].Seconds(),
			FLOPs: l.FLOPs, Bytes: l.Bytes}
		o.LimitSeconds = max(float64(l.FLOPs)/arithmeticPeak(l, limits),
			float64(l.Bytes)/limits[device.PeakCopy].PerSecond)
		ops[i] = o
	}
	return ops, nil
}

// arithmeticPeak returns the peak for the element type of the first operand of an op. The op multiplies numbers of this
// type.
func arithmeticPeak(l plan.LaunchInfo, limits map[device.Peak]device.Reached) float64 {
	narrow := map[tensor.DType]device.Peak{tensor.BF16: device.PeakBF16, tensor.F16: device.PeakF16}
	if len(l.In) > 0 {
		if peak := limits[narrow[l.In[0].DType]].PerSecond; peak > 0 {
			return peak
		}
	}
	return limits[device.PeakF32].PerSecond
}

// byKind adds up the launches of each kind of op. It returns the sums in descending order of time.
func byKind(ops []opTime) []opTime {
	sums := map[string]*opTime{}
	for _, o := range ops {
		s := sums[o.Op]
		if s == nil {
			s = &opTime{Name: o.Op, Op: o.Op}
			sums[o.Op] = s
		}
		s.Count++
		s.Seconds += o.Seconds
		s.FLOPs += o.FLOPs
		s.Bytes += o.Bytes
		s.LimitSeconds += o.LimitSeconds
	}
	var out []opTime
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b opTime) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Op, b.Op))
	})
	return out
}

func writeOps(w io.Writer, ops []opTime) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "op\tlaunches\tms\tshare\tGFLOP/s\tGB/s\tof limit\t")
	total, limit := 0.0, 0.0
	for _, o := range ops {
		total += o.Seconds
		limit += o.LimitSeconds
	}
	if total <= 0 {
		return errors.New("bench ops: no time was measured")
	}
	for _, o := range ops {
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%.1f %%\t%.1f\t%.1f\t%.0f %%\t\n", o.Name, o.Count, 1e3*o.Seconds,
			100*o.Seconds/total,
			float64(o.FLOPs)/o.Seconds/1e9, float64(o.Bytes)/o.Seconds/1e9, 100*o.LimitSeconds/o.Seconds)
	}
	fmt.Fprintf(t, "all\t\t%.3f\t\t\t\t%.0f %%\t\n", 1e3*total, 100*limit/total)
	return t.Flush()
}
