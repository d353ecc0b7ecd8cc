package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// tracedSteps is the summary of a timeline of steps. It also contains the cost of recording.
type tracedSteps struct {
	File  string `json:"file"`
	Steps int    `json:"steps"`
	Spans int    `json:"spans"`
	// Explained is the fraction of the steps' time that recorded events cover. If the GPU records its activity, only
	// the events of the GPU count.
	Explained float64 `json:"explained"`
	Least     float64 `json:"explained_least"` // minimum of Explained over the steps
	Launches  float64 `json:"launch_share"`
	Copies    float64 `json:"copy_share"`
	Waits     float64 `json:"wait_share"`
	Host      float64 `json:"host_share"`
	Gaps      float64 `json:"gap_share"`
	Seconds   float64 `json:"step_seconds_median"`
	// median time of the steps before and after the traced steps
	Untraced float64 `json:"untraced_step_seconds_median"`
	Overhead float64 `json:"overhead"` // Seconds / Untraced − 1: the cost of recording

	GPU *GPUUse `json:"gpu,omitempty"` // not nil if the device records its own activity
	// Missing is the reason why the device does not record its activity. In this case, the host measures the time of
	// the launches.
	Missing string `json:"gpu_missing,omitempty"`
}

// traceSteps records some steps and writes their timeline. It then runs untraced steps, which show the cost of
// recording. The list before contains the times of the untraced steps so far.
func (b *benchmark) traceSteps(ctx context.Context, before []time.Duration) (*tracedSteps, error) {
	untraced := slices.Clone(before[max(0, len(before)-b.flags.traceSteps):])
	notes, missing := observe.StartNoting(b.device)
	rec, lost, err := b.record(ctx, notes)
	if errors.Is(err, observe.ErrNothingNoted) {
		missing = err
		rec, lost, err = b.record(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	if err := b.more(ctx, b.flags.traceSteps, func(took time.Duration) {
		untraced = append(untraced, took)
	}); err != nil {
		return nil, err
	}
	info := b.device.Info()
	ranks := []trace.Rank{{Name: info.Name + ", " + info.Model, Spans: rec.Spans()}}
	if err := observe.WriteTrace(b.flags.trace, ranks); err != nil {
		return nil, exit.With(exit.IO, fmt.Errorf("bench train: --trace: %w", err))
	}
	slices.Sort(untraced)
	x := observe.Explained(ranks)
	t := &tracedSteps{File: b.flags.trace, Steps: x.Steps, Spans: len(rec.Spans()), Explained: x.Mean, Least: x.Least,
		Launches: x.Kinds[timeline.Launch], Copies: x.Kinds[timeline.Copy], Waits: x.Kinds[timeline.Wait],
		Host: x.Kinds[timeline.Work], Gaps: x.Gap,
		Seconds: x.Times[(len(x.Times)-1)/2].Seconds(), Untraced: untraced[(len(untraced)-1)/2].Seconds(),
		GPU: gpuUseOf(rec.Spans(), lost)}
	t.Overhead = t.Seconds/t.Untraced - 1
	if missing != nil {
		t.Missing = missing.Error()
	}
	return t, nil
}

// more runs additional steps. After each step, it calls visit with the time of the step.
func (b *benchmark) more(ctx context.Context, steps int, visit func(took time.Duration)) error {
	for range steps {
		begun := time.Now()
		if _, err := b.replica.Step(ctx, b.loader, replica.StepOptions{Rate: b.config.Optimizer.LR}); err != nil {
			return exit.With(exit.Device, err)
		}
		visit(time.Since(begun))
	}
	return nil
}

// record records steps and then ends the recording of the device. The result lost is the number of records that the
// device dropped.
func (b *benchmark) record(ctx context.Context, notes *observe.Noting) (rec *timeline.Recorder, lost int64, err error) {
	defer func() {
		if left := notes.Leave(); left != nil {
			err = errors.Join(err, left)
		}
	}()
	unseen := func(time.Duration) {}
	if notes != nil { // do not measure this step, in which the device captures its graphs again
		if err := b.more(ctx, 1, unseen); err != nil {
			return nil, 0, err
		}
	}
	rec = notes.Recorder(int64(b.flags.warmup + b.flags.steps + 1))
	if err := b.replica.Trace(rec); err != nil {
		return nil, 0, exit.Usagef("bench train: --trace: %w", err)
	}
	if err := b.more(ctx, b.flags.traceSteps, unseen); err != nil {
		return nil, 0, err
	}
	if err := b.replica.Trace(nil); err != nil {
		return nil, 0, exit.With(exit.Device, err)
	}
	if lost, err = notes.Finish(rec); err != nil && !errors.Is(err, observe.ErrNothingNoted) {
		return nil, lost, exit.With(exit.Device, fmt.Errorf("bench train: --trace: %w", err))
	}
	if notes != nil { // run one more step, because the device captures its graphs again in it
		if err := b.more(ctx, 1, unseen); err != nil {
			return nil, lost, err
		}
	}
	return rec, lost, err
}

// String formats the summary for a terminal.
func (t *tracedSteps) String() string {
	text := fmt.Sprintf("%s: %d steps in %d spans, ", t.File, t.Steps, t.Spans)
	if t.GPU == nil {
		text += fmt.Sprintf("which cover %.2f %% of the time of the steps (at least %.2f %% of each step): launches %.2f, copies %.2f, waiting %.2f, host %.2f %%; ",
			100*t.Explained, 100*t.Least, 100*t.Launches, 100*t.Copies, 100*t.Waits, 100*t.Host)
	}
	text += fmt.Sprintf("tracing changed the step time by %+.1f %% (%.4f s, without tracing %.4f s)\n", 100*t.Overhead,
		t.Seconds, t.Untraced)
	if t.GPU != nil {
		text += t.GPU.String()
	}
	return text
}
