package run

import (
	"errors"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

func (tr *training) loopOptions(screen *observe.Console) (train.Options, error) {
	c, resume := tr.process.Cfg, tr.resume
	store, err := checkpoint.Open(tr.run.Folder.CheckpointDir(),
		checkpoint.Options{Keep: c.Checkpoint.Keep, Watch: tr.disk.watch.Begin})
	if err != nil {
		return train.Options{}, err
	}
	tr.process.Later(store.Close)
	if resume != nil {
		if _, err := store.SetAside(resume.Step); err != nil {
			return train.Options{}, err
		}
	}
	if tr.records, err = observe.OpenRecords(tr.run, resume); err != nil {
		return train.Options{}, err
	}
	if err := tr.balancing.ReportTo(screen, resume); err != nil {
		return train.Options{}, err
	}
	o, err := tr.sharedOptions()
	o.Store, o.Resume = store, resume
	all, timed, watchErr := observe.Watchers(tr.run, resume, tr.records, screen, tr.balancing.Observer())
	if err = errors.Join(err, watchErr); err != nil {
		return o, err
	}
	tr.timed, o.Timed = timed, timed.Known
	tr.balancing.WatchedBy(all)
	tr.balancing.WatchedBy(timed.Observers)
	tracking, trackErr := observe.OpenTracking(tr.run, resume)
	err = errors.Join(err, trackErr)
	if tr.tracking = tracking; tracking != nil {
		tr.balancing.Watch(tracking.Decided)
		all = append(all, tracking)
	}
	if tr.watch != nil {
		tr.balancing.Watch(tr.watch.Decided)
		all = append(all, tr.watch)
	}
	if tr.exporter != nil {
		all = append(all, tr.exporter)
	}
	all = append(all, savedAs{&tr.disk})
	if tr.uploads != nil {
		all = append(all, uploading{tr.uploads})
	}
	o.Observer = rebalance.Muted{Observer: all, Quiet: tr.balancing.Quiet}
	o.Beside, o.Disk = true, &tr.disk
	o.SaveSteps, o.SaveInterval = int64(c.Checkpoint.IntervalSteps), session.Seconds(c.Checkpoint.IntervalSeconds)
	o.Template = checkpoint.State{Program: version.Text(), Seed: c.Experiment.Seed, Config: string(c.TOML()),
		Extra: tr.run.Extra()}
	if c := tr.run.Folder.Checkpoint; c != nil {
		tr.disk.newest.Store(&c.Path)
		o.Foreign = filepath.Dir(c.Path) != filepath.Clean(tr.run.Folder.CheckpointDir())
	}
	return o, err
}

// sharedOptions returns the training options that are equal on all ranks.
func (tr *training) sharedOptions() (o train.Options, err error) {
	c := tr.process.Cfg
	o = train.Options{Replica: tr.run.Replica, Schedule: tr.run.Schedule(), Steps: int64(c.Train.Steps),
		Epochs: tr.run.Epochs, MaxDuration: session.Seconds(c.Train.MaxSeconds),
		EvalInterval: c.Train.EvalInterval, EvalAverage: c.EMA.Evaluate, NormsInterval: int64(c.Train.NormsInterval),
		KeepBest: c.Checkpoint.Best, BestMetric: c.Checkpoint.BestMetric,
		EarlyStop: train.EarlyStop{Metric: c.Train.EarlyStopMetric, Patience: c.Train.EarlyStopPatience,
			MinDelta: c.Train.EarlyStopMinDelta}, SaveRequests: tr.saves.Load, SaveAgreed: func() {
			tr.run.Agreed.Add(1)
		}, NaNPatience: c.Train.NaNPatience, NaNRollbacks: c.Train.NaNRollbacks, CompareSteps: process.CompareSteps,
		CompareShare: process.CompareShare, CompareData: tr.run.CompareRead()}
	if tr.rank.Telemetry != nil {
		o.Telemetry, o.Links = tr.rank.Telemetry.Sample, tr.rank.Telemetry.Report
	}
	if b := tr.balancing; b != nil && b.Policy != nil {
		o.Splitter = b
	}
	weather := tr.process.Opts.Lab.Weather != nil
	if tr.tracing = observe.NewTracing(tr.run); tr.tracing != nil || weather {
		o.BeforeStep = func(step int64) {
			if weather {
				tr.run.Lab.Before(step)
			}
			tr.tracing.Before(step)
		}
	}
	if c.Data.Corrupt == "skip" {
		o.MaxReplaced = c.Data.CorruptLimit
	}
	if o.Train, err = tr.run.NewLoader(tr.run.Loading); err != nil || !tr.run.Data.HasEval() {
		return o, err
	}
	o.Eval, err = tr.run.NewLoader(tr.run.Evaluating())
	return o, err
}
