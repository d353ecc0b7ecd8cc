package observe

import (
	"math"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/prometheus"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Exporter is the observer that keeps the metrics for Prometheus. Its methods never wait for a scraper.
type Exporter struct {
	*prometheus.Metrics
	ranks  []prometheus.Rank
	report task.Report
	causes []string // possible causes of noise
}

// NewExporter returns an exporter for the metrics of these ranks.
func NewExporter(a *assembly.Run, ranks []prometheus.Rank) *Exporter {
	e := &Exporter{ranks: ranks, report: a.Report(), causes: straggler.NoiseCauses()}
	run := prometheus.Run{Name: a.Process.Cfg.Experiment.Name, Model: a.Process.Cfg.Model.Name, Dataset: a.Data.Name,
		Policy: a.Process.Cfg.Balance.Policy, Program: version.Text(), Ranks: ranks, NoiseCauses: e.causes}
	for _, m := range e.report.Metrics {
		run.Metrics = append(run.Metrics, m.Key)
	}
	e.Metrics = prometheus.New(run, seconds(time.Now()))
	return e
}

// seconds converts a time to seconds since 1970, for readers on other machines.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// StepDone implements [train.Observer]. It allocates no memory.
func (e *Exporter) StepDone(r *train.StepRecord) {
	e.Update(func(s *prometheus.State) {
		s.Step, s.Planned, s.Skipped = r.Step, r.Total, r.Skipped
		s.Epoch = float64(r.Epoch) + float64(r.EpochStep)/float64(r.EpochSteps)
		s.Steps++
		s.Values = valuesOf(r)
		s.StepSeconds.Add(r.Took.Seconds())
		s.LastProgress = seconds(r.Time)
		for i := range s.Ranks {
			rank, own := &s.Ranks[i], &r.Ranks[e.ranks[i].Number]
			rank.Share, rank.Compute, rank.Sensors = own.Samples, own.Compute().Seconds(), own.Telemetry
			rank.Samples += int64(own.Samples)
			takeReport(rank.Links, &own.Links)
			rank.Bytes, rank.Hidden = rank.Bytes+own.Bytes, rank.Hidden+own.Times.Hidden.Seconds()
			rank.Bus = runtime.BusBandwidth(float64(own.Bytes), (own.Times.Communication + own.Times.Hidden).Seconds(),
				len(r.Ranks))
			s.Samples += int64(own.Samples)
			t := &own.Times
			for phase, took := range [...]time.Duration{t.Data, t.Forward, t.Backward, t.Communication, t.Optimizer} {
				rank.Phases[phase] += took.Seconds()
			}
		}
	})
}

// Decided adds a decision of the balancer. The parameter steps is the number of steps in the decision's window, and
// verdicts may be nil.
func (e *Exporter) Decided(steps int, d *balancer.Decision, verdicts []straggler.Verdict) {
	e.Update(func(s *prometheus.State) {
		s.Decisions++
		if d.Changed {
			s.Changes++
		}
		s.Oracle, s.Imbalance = d.ShareOfOracle(), d.Imbalance
		s.Gain, _, _ = d.Gain()
		s.Useful += d.Lost.Useful * float64(steps)
		for i, lost := range d.Lost.Lost() {
			if lost > 0 && !math.IsInf(lost, 0) { // skip an unknown loss (NaN)
				s.Lost[i] += lost * float64(steps)
			}
		}
		if i := slices.Index(e.causes, d.NoiseCause); i >= 0 {
			s.Noise[i] += d.Lost.Noise * float64(steps)
		}
		for i := range s.Ranks {
			if s.Ranks[i].Verdict = -1; verdicts != nil {
				s.Ranks[i].Verdict = int(verdicts[e.ranks[i].Number].Kind)
			}
		}
	})
}

// EvalDone implements train.Observer.
func (e *Exporter) EvalDone(v train.Evaluation) {
	e.Update(func(s *prometheus.State) {
		s.Evaluations++
		s.EvaluationStep, s.EvaluationLoss, s.LastProgress = v.Step, v.Loss, seconds(time.Now())
		for i, m := range e.report.Metrics {
			s.EvaluationMetrics[i] = m.Of(v.Score())
		}
	})
}

// RolledBack implements train.Observer.
func (e *Exporter) RolledBack(step int64) {
	e.Update(func(s *prometheus.State) { s.Step, s.RollBacks = step, s.RollBacks+1 })
}

// Saving implements train.Observer.
func (e *Exporter) Saving() {}

// Saved implements train.Observer.
func (e *Exporter) Saved(_ checkpoint.Saved, took time.Duration) {
	e.Update(func(s *prometheus.State) {
		s.Checkpoints++
		s.CheckpointSeconds, s.LastCheckpoint = took.Seconds(), seconds(time.Now())
		s.LastProgress = s.LastCheckpoint
	})
}

// Warn implements train.Observer.
func (e *Exporter) Warn(error) { e.Update(func(s *prometheus.State) { s.Warnings++ }) }
