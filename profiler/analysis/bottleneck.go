package analysis

import (
	"context"
	"errors"
	"iter"
	"path/filepath"

	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// BottleneckSummary describes what limits a run, without its warm-up.
type BottleneckSummary struct {
	// cause of the largest loss, if this loss is at least a tenth of the time; otherwise "compute-bound"
	Bound   string `json:"bound"`
	Verdict string `json:"verdict"`
	// rank that the verdict names; null if it names no single rank
	Rank    *int           `json:"rank"`
	Windows map[string]int `json:"windows"`                // number of windows for each verdict
	Parts   Parts          `json:"parts_seconds_per_step"` // means over all steps; they sum to Step
	Step    Number         `json:"step_seconds"`           // mean measured time of a step
	Account string         `json:"-"`                      // the sum of the parts as text
}

// Parts contains the parts of a step, s; see package account.
type Parts struct {
	Useful        Number `json:"useful"`
	Imbalance     Number `json:"imbalance"`
	Communication Number `json:"communication"`
	Data          Number `json:"data"`
	Memory        Number `json:"memory"`
	Noise         Number `json:"noise"`
	Granularity   Number `json:"granularity"`
	Pauses        Number `json:"pauses"`
}

// ofOracle returns the fraction of the oracle, which follows from the parts of a step: the time with the best shares
// divided by the time with the shares in use, both without noise.
func (b *BottleneckSummary) ofOracle() Number {
	steady := b.Step - b.Parts.Noise
	if steady <= 0 {
		return Number(unknown)
	}
	return 1 - b.Parts.Imbalance/steady
}

// verdicts adds up the results of the windows of a run.
type verdicts struct {
	total runtime.BottleneckTotal
	count map[string]int
}

// summary returns the summary, or nil if there are no windows.
func (v *verdicts) summary() *BottleneckSummary {
	if v.total.Steps() == 0 {
		return nil
	}
	whole := v.total.Verdict()
	a := whole.Account
	out := &BottleneckSummary{Bound: whole.Bound.String(), Verdict: whole.String(), Windows: v.count,
		Step: Number(a.Step), Account: a.String(),
		Parts: Parts{Number(a.Useful), Number(a.Imbalance), Number(a.Communication), Number(a.Data), Number(a.Memory),
			Number(a.Noise), Number(a.Granularity), Number(a.Pauses)}}
	if whole.Rank >= 0 {
		out.Rank = &whole.Rank
	}
	return out
}

// recordsOf returns the records of one rank in order. After the last record it sets *err.
func recordsOf(ctx context.Context, path string, err *error) iter.Seq[runtime.Record] {
	return func(yield func(runtime.Record) bool) {
		wanted := true
		_, *err = runtime.EachMetric(ctx, path, func(m *runtime.Record) { wanted = wanted && yield(*m) })
	}
}

// bottleneck evaluates the records of all ranks in a segment, step by step. The decisions of the balancer compare the
// shares in use with the best shares.
func bottleneck(ctx context.Context, logs string, ranks int, segment runtime.Segment,
	decisions []Decision) (*BottleneckSummary, error) {
	var spans runtime.StepTimes
	find, out := runtime.NewBottlenecks(ranks), &verdicts{count: map[string]int{}}
	next, failures := make([]func() (runtime.Record, bool), ranks), make([]error, ranks)
	heads, more, times := make([]runtime.Record, ranks), make([]bool, ranks), make([]runtime.RankTimes, ranks)
	for rank := range ranks {
		pull, stop := iter.Pull(recordsOf(ctx, filepath.Join(logs, runtime.FileName(rank)), &failures[rank]))
		defer stop()
		next[rank] = pull
		heads[rank], more[rank] = pull()
	}
	for more[0] {
		step := heads[0].Iteration
		span := spans.Next(&heads[0], heads[0].IterationTime().Seconds())
		if step <= segment.After {
			heads[0], more[0] = next[0]()
			continue
		}
		for len(decisions) > 0 && decisions[0].Step < step {
			decisions = decisions[1:]
		}
		if len(decisions) > 0 { // a decision describes the steps before it
			find.Balanced(1, decisions[0].split())
			find.Noise(decisions[0].Lost["noise"], decisions[0].Noise)
		}
		for rank := range ranks {
			for more[rank] && heads[rank].Iteration < step {
				heads[rank], more[rank] = next[rank]()
			}
			times[rank] = runtime.RankTimes{}
			if more[rank] && heads[rank].Iteration == step {
				times[rank] = timesOf(&heads[rank])
				heads[rank], more[rank] = next[rank]()
			}
		}
		if find.Add(span.Seconds, times); find.Full() {
			v := find.Verdict()
			out.total.Add(v)
			out.count[v.Bound.String()]++
		}
	}
	if find.Steps() > 0 { // the sums include the steps after the last window
		v := find.Verdict()
		out.total.Add(v)
		if len(out.count) == 0 { // the run is shorter than one window
			out.count[v.Bound.String()]++
		}
	}
	return out.summary(), errors.Join(failures...)
}

// split compares the shares before a decision with the best shares.
func (d *Decision) split() account.Split {
	s := account.Split{Oracle: d.ShareOfOracle, Granularity: unknown}
	if granularity, known := d.Lost["granularity"]; known && d.StepSeconds > 0 {
		s.Granularity = granularity / max(d.StepSeconds-d.Lost["noise"], granularity)
	}
	return s
}

func timesOf(m *runtime.Record) runtime.RankTimes {
	return runtime.RankTimes{Samples: int(m.BatchSize), Data: m.DataLoading.Seconds(), Forward: m.Forward.Seconds(),
		Backward: m.Backward.Seconds(), Exchanges: m.Exchanges.Seconds(),
		Communication: m.Communication.Seconds(), Hidden: m.CommunicationHidden.Seconds(),
		Optimizer: m.Optimizer.Seconds(), MemoryPercent: m.Telemetry[telemetry.Memory]}
}
