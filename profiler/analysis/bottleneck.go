package analysis

import (
	"errors"
	"iter"
	"path/filepath"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/telemetry"
)

// BottleneckSummary names the limit of a run, summed over package runtime's verdicts on windows of steps.
type BottleneckSummary struct {
	// Bound is the bound with the largest loss over all windows, if that is a tenth of their time; else compute-bound.
	Bound   string         `json:"bound"`
	Verdict string         `json:"verdict"`               // text of the last window with that bound
	Rank    *int           `json:"rank"`                  // rank named by that window; null: no single rank
	Windows map[string]int `json:"windows"`               // number of windows per verdict
	Lost    LostTimes      `json:"lost_seconds_per_step"` // means over the steps of all windows
	Step    Number         `json:"step_seconds"`          // the same mean, for the slowest rank
}

// LostTimes are seconds.
type LostTimes struct {
	Data          Number `json:"data"`
	Communication Number `json:"communication"`
	Straggler     Number `json:"straggler"`
	Memory        Number `json:"memory"`
}

// verdicts adds up windows.
type verdicts struct {
	lost  [runtime.MemoryBound + 1]float64 // s, sums over steps
	step  float64                          // s, sum over steps
	steps float64
	last  map[runtime.Bound]runtime.Bottleneck
	count map[string]int
}

func (v *verdicts) add(b runtime.Bottleneck) {
	n := float64(b.Steps)
	for cause := range v.lost {
		v.lost[cause] += n * b.Lost[cause]
	}
	v.step, v.steps = v.step+n*b.Step, v.steps+n
	v.last[b.Bound] = b
	v.count[b.Bound.String()]++
}

// summary returns nil without windows.
func (v *verdicts) summary() *BottleneckSummary {
	if v.steps == 0 {
		return nil
	}
	bound := runtime.ComputeBound
	for cause := runtime.DataBound; cause <= runtime.MemoryBound; cause++ {
		if _, judged := v.last[cause]; judged && v.lost[cause] >= runtime.LostFraction*v.step && v.lost[cause] > v.lost[bound] {
			bound = cause
		}
	}
	lost := func(b runtime.Bound) Number { return Number(v.lost[b] / v.steps) }
	out := &BottleneckSummary{Bound: bound.String(), Windows: v.count, Step: Number(v.step / v.steps),
		Lost: LostTimes{Data: lost(runtime.DataBound), Communication: lost(runtime.CommunicationBound), Straggler: lost(runtime.StragglerBound), Memory: lost(runtime.MemoryBound)}}
	window, judged := v.last[bound]
	if !judged { // windows with different bounds, none of which matters over the whole run
		out.Verdict = "no cause takes a tenth of the time of all windows"
		return out
	}
	out.Verdict = window.String()
	if window.Rank >= 0 {
		out.Rank = &window.Rank
	}
	return out
}

// recordsOf returns the records of one rank, in order. It sets err after the last one.
func recordsOf(path string, err *error) iter.Seq[runtime.Record] {
	return func(yield func(runtime.Record) bool) {
		wanted := true
		_, *err = runtime.EachMetric(path, func(m *runtime.Record) { wanted = wanted && yield(*m) })
	}
}

// bottleneck judges the records of all ranks, step by step.
func bottleneck(logs string, ranks int) (*BottleneckSummary, error) {
	find, out := runtime.NewBottlenecks(ranks), &verdicts{last: map[runtime.Bound]runtime.Bottleneck{}, count: map[string]int{}}
	next, failures := make([]func() (runtime.Record, bool), ranks), make([]error, ranks)
	heads, more, times := make([]runtime.Record, ranks), make([]bool, ranks), make([]runtime.RankTimes, ranks)
	for rank := range ranks {
		pull, stop := iter.Pull(recordsOf(filepath.Join(logs, runtime.FileName(rank)), &failures[rank]))
		defer stop()
		next[rank] = pull
		heads[rank], more[rank] = pull()
	}
	for more[0] {
		step := heads[0].Iteration
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
		if find.Add(times); find.Full() {
			out.add(find.Verdict())
		}
	}
	if len(out.count) == 0 && find.Steps() > 0 { // the run is shorter than a window
		out.add(find.Verdict())
	}
	return out.summary(), errors.Join(failures...)
}

func timesOf(m *runtime.Record) runtime.RankTimes {
	return runtime.RankTimes{Samples: int(m.BatchSize), Data: m.DataLoading.Seconds(), Forward: m.Forward.Seconds(), Backward: m.Backward.Seconds(), Exchanges: m.Exchanges.Seconds(),
		Communication: m.Communication.Seconds(), Hidden: m.CommunicationHidden.Seconds(), Optimizer: m.Optimizer.Seconds(), MemoryPercent: m.Telemetry[telemetry.Memory]}
}
