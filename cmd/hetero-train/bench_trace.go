package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// tracedSteps are what a timeline of steps says, and what recording it cost.
type tracedSteps struct {
	File      string  `json:"file"`
	Steps     int     `json:"steps"`
	Spans     int     `json:"spans"`
	Explained float64 `json:"explained"`       // share of the steps' time that has a name
	Least     float64 `json:"explained_least"` // of any step
	Launches  float64 `json:"launch_share"`
	Copies    float64 `json:"copy_share"`
	Waits     float64 `json:"wait_share"`
	Host      float64 `json:"host_share"`
	Gaps      float64 `json:"gap_share"`
	Seconds   float64 `json:"step_seconds_median"`
	Untraced  float64 `json:"untraced_step_seconds_median"` // of steps before and behind them
	Overhead  float64 `json:"overhead"`                     // Seconds / Untraced - 1
}

// traceSteps records steps, between untraced ones, and writes their timeline.
func (b *benchmark) traceSteps(ctx context.Context, before []train.StepResult) (*tracedSteps, error) {
	var untraced []time.Duration
	for _, s := range before[max(0, len(before)-b.flags.traceSteps):] {
		untraced = append(untraced, s.Times.Total())
	}
	steps := func(each func(train.StepResult)) error {
		for range b.flags.traceSteps {
			r, err := b.replica.Step(ctx, b.loader, 0.01)
			if err != nil {
				return withCode(exitDevice, err)
			}
			each(r)
		}
		return nil
	}
	rec := timeline.New(int64(b.flags.warmup + b.flags.steps + 1))
	if err := b.replica.Trace(rec); err != nil {
		return nil, usageError("bench train: --trace: %w", err)
	}
	if err := steps(func(train.StepResult) {}); err != nil {
		return nil, err
	}
	if err := b.replica.Trace(nil); err != nil {
		return nil, withCode(exitDevice, err)
	}
	if err := steps(func(r train.StepResult) { untraced = append(untraced, r.Times.Total()) }); err != nil {
		return nil, err
	}
	info := b.device.Info()
	ranks := []trace.Rank{{Name: info.Name + ", " + info.Model, Spans: rec.Spans()}}
	if err := writeTrace(b.flags.trace, ranks); err != nil {
		return nil, withCode(exitIO, fmt.Errorf("bench train: --trace: %w", err))
	}
	slices.Sort(untraced)
	x := explained(ranks)
	t := &tracedSteps{File: b.flags.trace, Steps: x.steps, Spans: len(rec.Spans()), Explained: x.mean, Least: x.least,
		Launches: x.kinds[timeline.Launch], Copies: x.kinds[timeline.Copy], Waits: x.kinds[timeline.Wait], Host: x.kinds[timeline.Work], Gaps: x.gap,
		Seconds: x.times[(len(x.times)-1)/2].Seconds(), Untraced: untraced[(len(untraced)-1)/2].Seconds()}
	t.Overhead = t.Seconds/t.Untraced - 1
	return t, nil
}

// String is what people read of it.
func (t *tracedSteps) String() string {
	return fmt.Sprintf("%s: %d steps in %d spans, which explain %.2f %% of their time (at least %.2f %% of each): launches %.2f, copies %.2f, waiting %.2f, host %.2f %%; traced steps took %+.1f %% (%.4f s, untraced %.4f s)\n",
		t.File, t.Steps, t.Spans, 100*t.Explained, 100*t.Least, 100*t.Launches, 100*t.Copies, 100*t.Waits, 100*t.Host, 100*t.Overhead, t.Seconds, t.Untraced)
}
