package bench

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// describeUpdate returns the settings of the optimizer for the JSON output. Two programs do equal work only if their
// settings are equal.
func describeUpdate(cfg *config.Config) map[string]any {
	o := &cfg.Optimizer
	out := map[string]any{"name": o.Name, "weight_decay": o.WeightDecay, "decay_norms_and_biases": o.DecayNormsAndBias,
		"clip_norm": cfg.Train.ClipNorm}
	if o.Name == "adamw" {
		out["betas"], out["eps"] = o.Betas, o.Eps
	} else {
		out["momentum"], out["nesterov"] = o.Momentum, o.Nesterov
	}
	return out
}

// updateText describes the optimizer, for example "adamw, betas 0.9 and 0.999, weight decay 0.1".
func updateText(o *config.Optimizer) string {
	how := fmt.Sprintf("betas %g and %g", o.Betas[0], o.Betas[1])
	if o.Name == "sgd" {
		how = fmt.Sprintf("momentum %g", o.Momentum)
	}
	return fmt.Sprintf("%s, %s, weight decay %g", o.Name, how, o.WeightDecay)
}

func newBenchTrain(a *cli.App) *cobra.Command {
	f := new(modelFlags)
	cmd := &cobra.Command{Use: "train", Short: "Time whole training steps on synthetic data",
		Example: `  hetero-train bench train --model resnet50 --image-size 224 --batch-size 32 --precision bf16
  hetero-train bench train --model gpt2 --seq-len 256 --batch-size 4 --precision f32
  hetero-train bench train --model bert_base --seq-len 128 --batch-size 8
  hetero-train bench train --model resnet50 --image-size 64 --trace step.json`, Args: cli.NoArguments}
	f.add(cmd, a.Env)
	cmd.Flags().StringVar(&f.trace, "trace", "", "after the timed steps, run more steps and write their timeline, with every op (on a GPU: every kernel), to `file`; open it in ui.perfetto.dev")
	cmd.Flags().IntVar(&f.traceSteps, "trace-steps", 5, "number of steps in the timeline")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer b.closeAll()
		runtime.LockOSThread() // the threads of a device belong to the calling thread, also in timed and traced steps
		defer runtime.UnlockOSThread()
		var peak device.Reached
		if m, ok := b.device.(device.PeakMeasurer); ok {
			a.Progress(fmt.Sprintf("measuring the peak of %s", b.device.Info().Name))
			if peak, err = measurePeak(m, devices.PeakOf(b.device, b.precision)); err != nil {
				return exit.With(exit.Device, err)
			}
		}
		var steps []replica.StepResult
		var took []time.Duration
		each := func(r replica.StepResult, d time.Duration) { steps, took = append(steps, r), append(took, d) }
		b.progress = stepProgress(a, f.warmup, f.steps)
		first, err := b.run(cmd.Context(), each)
		if err != nil {
			return exit.With(exit.Device, err)
		}
		var traced *tracedSteps
		if f.trace != "" {
			if traced, err = b.traceSteps(cmd.Context(), took); err != nil {
				return err
			}
		}
		return b.report(a, steps, took, first, peak, traced)
	}
	return cmd
}

func (b *benchmark) report(a *cli.App, steps []replica.StepResult, took []time.Duration, first time.Duration,
	peak device.Reached, traced *tracedSteps) error {
	totals := slices.Clone(took)
	var sum replica.StepTimes
	var between time.Duration
	for i, s := range steps {
		between += took[i] - s.Times.Total()
		sum.Data += s.Times.Data
		sum.Forward += s.Times.Forward
		sum.Backward += s.Times.Backward
		sum.Optimizer += s.Times.Optimizer
	}
	slices.Sort(totals)
	median := (totals[(len(totals)-1)/2] + totals[len(totals)/2]) / 2
	flops := float64(b.replica.FLOPs())
	_, peakBytes := b.device.Memory()
	mean := func(d time.Duration) float64 { return d.Seconds() / float64(len(steps)) }
	out := deviceFacts(b.device.Info())
	for key, v := range map[string]any{
		"model": b.flags.model, "precision": b.precision.String(), "batch_size": b.flags.batch,
		"grad_accumulation": b.flags.accumulate, "optimizer": describeUpdate(b.config), "steps": len(steps),
		"step_seconds_median": median.Seconds(), "step_seconds_min": totals[0].Seconds(),
		"step_seconds_max":   totals[len(totals)-1].Seconds(),
		"samples_per_second": float64(b.flags.batch) / median.Seconds(),
		"flops_per_sample":   flops / float64(b.flags.batch),
		"achieved_gflops":    flops / median.Seconds() / 1e9, "peak_gflops": peak.PerSecond / 1e9, "peak_by": peak.By,
		"peak_repeats": peak.Repeats, "peak_memory_bytes": peakBytes,
		"predicted_memory_bytes": b.replica.PredictedBytes(), "setup_seconds": b.setup.Seconds(),
		"first_step_seconds": first.Seconds(),
		"data_seconds":       mean(sum.Data), "forward_seconds": mean(sum.Forward),
		"backward_seconds":  mean(sum.Backward),
		"optimizer_seconds": mean(sum.Optimizer),
		"between_seconds":   mean(between),
		"final_loss":        steps[len(steps)-1].Score().Loss,
	} {
		out[key] = v
	}
	b.flags.describeSamples(out)
	rate := ""
	if b.flags.text() {
		perSecond := float64(b.flags.batch*b.flags.length) / median.Seconds()
		out["tokens_per_second"], rate = perSecond, fmt.Sprintf(" | %.0f tokens/s", perSecond)
	}
	fraction, known := devices.FractionOfPeak(flops/median.Seconds(), peak)
	out["share_of_peak"] = nil // null: the measured peak cannot be right
	if known {
		out["share_of_peak"] = fraction
	}
	if n, ok := b.device.(device.Noting); ok && n.Notes() != "" {
		out["device_notes"] = n.Notes()
		a.WarnOf(fmt.Sprintf("device %s: %s", out["device"], n.Notes()))
	}
	if traced != nil {
		out["trace"] = traced
		if traced.Missing != "" {
			a.WarnOf("bench train: --trace: each launch was timed separately, because " + traced.Missing)
		}
	}
	if b.flags.json {
		return show.JSON(a.Env.Stdout, out)
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "%s, %s, batch %d, %v, %s on %s (%s, %d threads)\n", b.flags.model, b.flags.shape(),
		b.flags.batch, b.precision, updateText(&b.config.Optimizer), out["device"], out["isa"], out["threads"])
	fmt.Fprintf(&lines, "step %.4f s median, %.4f … %.4f s | %.2f samples/s%s | %.1f GFLOP/s", median.Seconds(),
		totals[0].Seconds(), totals[len(totals)-1].Seconds(), out["samples_per_second"], rate, out["achieved_gflops"])
	switch {
	case known:
		fmt.Fprintf(&lines, " of %.1f (%s, best of %d): %.1f %%", peak.PerSecond/1e9, peak.By, peak.Repeats,
			100*fraction)
	case peak.PerSecond > 0:
		fmt.Fprintf(&lines, ", more than the measured peak of %.1f (%s): other processes probably used the device during the measurement of the peak",
			peak.PerSecond/1e9, peak.By)
	}
	fmt.Fprintf(&lines, "\ndata %.4f, forward %.4f, backward %.4f, optimizer %.4f s | memory %.2f GiB | set up in %.2f s, first step %.2f s\n",
		out["data_seconds"], out["forward_seconds"], out["backward_seconds"], out["optimizer_seconds"],
		show.GiB(peakBytes), b.setup.Seconds(), first.Seconds())
	if traced != nil {
		lines.WriteString(traced.String())
	}
	_, err := fmt.Fprint(a.Env.Stdout, lines.String())
	return err
}
