package observe

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// rankStep returns the report of one rank about a step.
func rankStep(data, compute, exchanges, communication time.Duration) train.RankStep {
	ms := time.Millisecond
	return train.RankStep{Sums: replica.Sums{Samples: 8}, Telemetry: telemetry.Unknown(),
		Times: replica.StepTimes{Data: data * ms, Forward: compute * ms / 2, Backward: compute * ms / 2,
			Exchanges: exchanges * ms, Communication: communication * ms}}
}

func TestBottleneckIsSaidWhenItChanges(t *testing.T) {
	equal := []train.RankStep{rankStep(0, 300, 0, 10), rankStep(0, 300, 0, 10)}
	late := []train.RankStep{rankStep(0, 300, 0, 100), rankStep(0, 300, 0, 100)}
	second := []train.RankStep{rankStep(0, 100, 0, 200), rankStep(0, 300, 0, 0)}
	first := []train.RankStep{rankStep(0, 300, 0, 0), rankStep(0, 100, 0, 200)}
	hungry, fed := []train.RankStep{rankStep(100, 300, 0, 0)}, []train.RankStep{rankStep(0, 300, 0, 0)}
	for _, c := range []struct {
		name    string
		windows [][]train.RankStep
		want    []string // expected parts of the log, one per line
	}{
		{"ranks that are balanced", [][]train.RankStep{equal, equal, equal}, []string{"compute-bound"}},
		{"and then are not", [][]train.RankStep{equal, late, late, second, second, first},
			[]string{"compute-bound", "communication-bound", "straggler: 150.0 of 300.0 ms per step (50 %) are lost to imbalance, which the best split would save: the others wait for rank 1",
				"wait for rank 0"}},
		{"one rank that computes", [][]train.RankStep{fed, fed}, nil},
		{"one rank that waits for data", [][]train.RankStep{fed, hungry, hungry, fed, fed},
			[]string{"data-bound: 100.0 of 400.0 ms", "compute-bound"}},
	} {
		var text bytes.Buffer
		o := newBottlenecks(slog.New(slog.NewTextHandler(&text, nil)), len(c.windows[0]),
			runtime.BottleneckSettings{Accumulation: 1, DataWorkers: 1, CPUs: 4})
		step := int64(0)
		for _, window := range c.windows {
			for range runtime.BottleneckWindow {
				step++
				o.StepDone(&train.StepRecord{Ranks: window, Step: step})
			}
		}
		for range 2 { // the observer ignores the first two steps of a run
			step++
			o.StepDone(&train.StepRecord{Ranks: c.windows[len(c.windows)-1], Step: step})
		}
		var got []string
		for line := range strings.Lines(text.String()) {
			got = append(got, line)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: got %d lines, want %d:\n%s", c.name, len(got), len(c.want), text.String())
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], `msg="bottleneck: `) || !strings.Contains(got[i], want) ||
				!strings.Contains(got[i], "level=INFO") || !strings.Contains(got[i], "advice=") {
				t.Errorf("%s: line %d is %q, want %q", c.name, i, got[i], want)
			}
		}
	}
}

func TestARunThatGoesBackBeginsItsWindowAnew(t *testing.T) {
	var text bytes.Buffer
	o := newBottlenecks(slog.New(slog.NewTextHandler(&text, nil)), 1, runtime.BottleneckSettings{Accumulation: 1})
	steps := func(n int, ranks ...train.RankStep) {
		for range n {
			o.StepDone(&train.StepRecord{Ranks: ranks})
		}
	}
	steps(51, rankStep(300, 300, 0, 0))
	o.RolledBack(0)
	steps(50, rankStep(0, 300, 0, 0))
	if text.Len() > 0 {
		t.Errorf("got %s", text.String())
	}
}

func TestBottleneckSettingsAreThoseInEffect(t *testing.T) {
	c := &config.Config{}
	c.Balance.Policy, c.Parallel.WireDType, c.Model.BatchNorm, c.Train.GradAccumulation = "hybrid", "auto", "sync", 2
	c.Balance.Options = parts.BuiltinCatalog.PolicyOptions("hybrid")
	got := bottleneckSettings(c, 6, "f32")
	want := runtime.BottleneckSettings{DataWorkers: 6, CPUs: 6, Policy: "hybrid", Learns: true, WireDType: "auto",
		AutoBuckets: true, SyncNorm: true, Precision: "f32", Accumulation: 2}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c.Balance.FixedShares, c.Data.Workers, c.Parallel.BucketCapMB = []int{1, 2}, 3, 5
	want.Policy, want.Learns, want.DataWorkers, want.AutoBuckets = "fixed", false, 3, false
	if got := bottleneckSettings(c, 6, "f32"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
