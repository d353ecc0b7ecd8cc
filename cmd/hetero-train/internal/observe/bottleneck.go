package observe

import (
	"log/slog"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// bottlenecks is the observer that determines the bottleneck of the run, and logs each change of it.
type bottlenecks struct {
	log      *slog.Logger
	settings runtime.BottleneckSettings
	find     *runtime.Bottlenecks
	times    []runtime.RankTimes // times of the current step, by rank
	events   *events             // receives every verdict; nil in tests
	logged   bool                // true after the first log message
	last     runtime.Bottleneck
}

func newBottlenecks(log *slog.Logger, ranks int, settings runtime.BottleneckSettings) *bottlenecks {
	return &bottlenecks{log: log, settings: settings, find: runtime.NewBottlenecks(ranks),
		times: make([]runtime.RankTimes, ranks)}
}

// Watchers returns the observers of the run in this order: the observers in first, the records, and the observers that
// the configuration selects. If profiling is off, the events, bottlenecks and communication have no observers.
func Watchers(a *assembly.Run, resume *checkpoint.State, records *Records, first ...train.Observer) (Observers, *Timed,
	error) {
	timed := &Timed{Observers: Observers{records}, records: records}
	all := append(Observers(first), timed)
	if a.Process.Cfg.Profile.Enabled {
		events, err := openEvents(a, resume)
		if err != nil {
			return nil, nil, exit.With(exit.FolderCode(err), err)
		}
		verdicts := newBottlenecks(a.Process.Opts.LogOf(logs.ComponentProfiler),
			max(a.Process.Opts.Assignment.WorldSize, 1), bottleneckSettingsOf(a))
		verdicts.events = events
		communication, err := openCommunication(a, resume)
		if err != nil {
			return nil, nil, exit.With(exit.FolderCode(err), err)
		}
		all = append(all, events)
		timed.Observers = append(timed.Observers, verdicts, communication)
	}
	if a.Process.Cfg.Profile.TensorBoardInterval > 0 {
		board, err := openBoard(a, resume)
		if err != nil {
			return nil, nil, exit.With(exit.FolderCode(err), err)
		}
		all = append(all, board)
	}
	if a.Process.Cfg.Train.NormsInterval > 0 {
		norms, err := openNorms(a, resume)
		if err != nil {
			return nil, nil, exit.With(exit.FolderCode(err), err)
		}
		all = append(all, norms)
	}
	return all, timed, nil
}

// bottleneckSettingsOf returns the settings on which the advice depends. They may differ between ranks, because the
// numbers of CPUs may differ.
func bottleneckSettingsOf(a *assembly.Run) runtime.BottleneckSettings {
	cpus := a.Process.OwnCPUs()
	s := bottleneckSettings(a.Process.Cfg, cpus, compute.TypesText(a.Rank.Types))
	s.Foreign = a.Foreign != nil
	return s
}

func bottleneckSettings(c *config.Config, cpus int, precision string) runtime.BottleneckSettings {
	s := runtime.BottleneckSettings{DataWorkers: c.Data.Workers, CPUs: cpus, Policy: c.Balance.Policy,
		Learns:    parts.PolicyTraits(c.Balance.Options).Learns,
		WireDType: c.Parallel.WireDType, Overlap: c.Parallel.Overlap,
		AutoBuckets: c.Parallel.BucketCapMB == 0, SyncNorm: c.Model.BatchNorm == "sync", Precision: precision,
		Accumulation: c.Train.MicroBatches()}
	if s.DataWorkers == 0 {
		s.DataWorkers = cpus
	}
	if len(c.Balance.FixedShares) > 0 {
		s.Policy, s.Learns = "fixed", false
	}
	return s
}

// StepDone implements [train.Observer]. It allocates memory only at the end of a window.
func (o *bottlenecks) StepDone(r *train.StepRecord) {
	for rank := range o.times {
		own := &r.Ranks[rank]
		t := &own.Times
		o.times[rank] = runtime.RankTimes{Samples: own.Samples, Data: t.Data.Seconds(), Forward: t.Forward.Seconds(),
			Backward:  t.Backward.Seconds(),
			Exchanges: t.Exchanges.Seconds(), Communication: t.Communication.Seconds(), Hidden: t.Hidden.Seconds(),
			Optimizer: t.Optimizer.Seconds(), MemoryPercent: own.Telemetry[telemetry.Memory]}
	}
	o.find.Add(r.Took.Seconds(), o.times)
	if !o.find.Full() {
		return
	}
	v := o.find.Verdict()
	if o.events != nil {
		o.events.judged(r.Step, v.Event(o.settings))
	}
	if o.isNews(v) {
		o.logged, o.last = true, v
		o.log.Info("bottleneck: "+v.String(), "step", r.Step, "advice", v.Advice(o.settings))
	}
}

// Decided stores two results of a balancer's decision: how the last steps' shares compare with the best shares, and the
// noise of these steps.
func (o *bottlenecks) Decided(steps int, d *balancer.Decision, _ []straggler.Verdict) {
	o.find.Balanced(steps, account.Split{
		Oracle: d.ShareOfOracle(), Granularity: d.Lost.Granularity / max(d.Lost.Step-d.Lost.Noise, d.Lost.Granularity)})
	cause := runtime.Cause{Name: d.NoiseCause, Rank: d.Noisy, Evidence: d.NoiseEvidence}
	o.find.Noise(d.Lost.Noise*float64(steps), cause)
}

// isNews reports whether to log a verdict. A run of one rank is normally compute-bound, so this first verdict is not
// logged. Otherwise, a verdict is logged if the bottleneck, its rank or the cause of noise has changed.
func (o *bottlenecks) isNews(v runtime.Bottleneck) bool {
	if !o.logged {
		return len(o.times) > 1 || v.Bound != runtime.ComputeBound
	}
	named := v.Bound == runtime.StragglerBound || v.Bound == runtime.NoiseBound
	return v.Bound != o.last.Bound || named && v.Rank >= 0 && v.Rank != o.last.Rank ||
		v.Bound == runtime.NoiseBound && v.Cause.Evidence != "" && v.Cause.Name != o.last.Cause.Name
}

// RolledBack implements train.Observer.
func (o *bottlenecks) RolledBack(int64) { o.find.Reset() }

// EvalDone implements train.Observer.
func (o *bottlenecks) EvalDone(train.Evaluation) {}

// Saving implements train.Observer.
func (o *bottlenecks) Saving() {}

// Saved implements train.Observer.
func (o *bottlenecks) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (o *bottlenecks) Warn(error) {}
