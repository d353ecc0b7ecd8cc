package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// training is the state of one training process.
type training struct {
	assembly.Run
	records   *observe.Records     // of the rank that leads; nil on the others
	tracing   *observe.Tracing     // nil if no steps are traced
	balancing *rebalance.Balancer  // nil for a single-rank run
	lifeline  *supervisor.Lifeline // reports to the supervisor that this rank saves
	saves     atomic.Int64         // SIGUSR1s of this rank so far
	looping   atomic.Bool          // the training loop runs or is about to start
}

// Train trains as cfg describes: as a single rank, as one of several ranks, or as their supervisor.
func Train(ctx context.Context, cfg *config.Config, opts session.Options) error {
	if err := process.CheckThreads(cfg, opts); err != nil {
		return err
	}
	if opts.Place.Launch && opts.Place.LocalWorldSize > 1 {
		return process.Supervise(ctx, cfg, opts)
	}
	say := opts.Log
	if !cli.Informs(opts.Place) { // another rank logs it
		say = slog.New(slog.DiscardHandler)
	}
	j := &training{Run: assembly.Run{Rank: compute.NewRank(cfg, opts)}}
	var err error
	if j.lifeline, err = supervisor.OpenLifeline(opts.Env.Environ); err != nil {
		return err
	}
	ctx, release := signals.Context(ctx, opts.Signals, say, opts.Screen, &j.saves, j.toldToStop)
	defer release()
	defer j.CloseAll()
	for _, open := range []func(context.Context) error{j.OpenDevice, j.OpenData, j.CheckModel, j.JoinTeam, j.agreePrecision, j.openRun, j.openReplica, j.beginRun, j.openTestbed} {
		if err := open(ctx); err != nil {
			j.Team.Abort(err) // also for a signal, because the other ranks do not know of it
			var s exit.Stopped
			if errors.As(context.Cause(ctx), &s) {
				err = exit.With(s.Saved(), s) // regardless of the interrupted operation
			}
			return j.tellLog(exit.Classify(ctx, err))
		}
		if j.finished() {
			return sayFinished(&j.Run)
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	j.balancing.EndBy(end)
	err = exit.Classify(ctx, j.train(ctx))
	if err != nil && !errors.As(err, new(exit.Stopped)) { // all ranks stop together
		j.Team.Abort(err)
	}
	return j.tellLog(err)
}

// toldToStop is called for a signal that ends the run. A step may take longer than the supervisor waits.
func (j *training) toldToStop() {
	if j.looping.Load() {
		j.lifeline.Hold()
	}
}

// openTestbed applies the conditions of the configuration and the environment to this rank.
func (j *training) openTestbed(ctx context.Context) (err error) {
	j.Lab, err = testbed.Open(ctx, &j.Rank)
	return err
}

// tellLog writes the error of a rank that prints nothing to its own log.
func (j *training) tellLog(err error) error {
	if err != nil && !j.Team.Leads() {
		fmt.Fprintf(j.Opts.LogFile, "%v\n", err)
	}
	return err
}

// finished reports, on all ranks, whether the run is complete.
func (j *training) finished() bool {
	if j.Team != nil {
		return j.Team.Finished
	}
	return j.Folder != nil && j.Folder.Finished != nil
}

// openRun decides how the run begins: from the start, from a checkpoint, or not at all because it is complete. It
// changes nothing on disk.
func (j *training) openRun(ctx context.Context) (err error) {
	if j.Team.Leads() {
		if j.Learnt, err = j.Derive(); err != nil {
			return err
		}
		run, err := experiment.Open(j.RunOptions())
		if err != nil {
			return err
		}
		j.Folder = run
		j.Later(run.Close)
		if run.Checkpoint != nil {
			j.Later(run.Checkpoint.Close)
		}
	}
	return j.tellFinished(ctx)
}

// beginRun prepares the run's folder, after all checks that could refuse the run.
func (j *training) beginRun(ctx context.Context) error {
	if j.Team.Leads() {
		if err := j.Folder.Begin(); err != nil {
			return err
		}
	}
	return j.tellStart(ctx)
}

// train builds, restores and runs the replica, and writes the result.
func (j *training) train(ctx context.Context) error {
	if !j.Team.Leads() {
		return j.follow(ctx)
	}
	file, err := j.Folder.OpenLog()
	if err != nil {
		return err
	}
	j.Later(file.Close)
	logFile := &logs.File{File: file, Screen: j.Opts.OnScreen}
	j.Opts.LogFile.To(logFile)
	j.SayOpened()
	resume, err := j.Restore()
	if err != nil {
		return err
	}
	if err := j.Folder.StoreConfig(string(j.Cfg.TOML()), version.Text()); err != nil {
		return err
	}
	j.balancing.SaveProfile()
	screen := observe.NewConsole(&j.Run, logFile)
	defer screen.Close()
	screen.Begin(resume)
	runOptions, err := j.loopOptions(resume, screen)
	if err != nil {
		return err
	}
	if err := j.Team.Ready(ctx); err != nil {
		return err
	}
	runOptions.Leaving = j.lifeline.Hold
	j.looping.Store(true)
	if ctx.Err() != nil { // by an earlier signal
		j.lifeline.Hold()
	}
	result, err := train.Run(ctx, runOptions)
	screen.Close()
	j.tracing.Over(err)
	if errors.Is(err, train.ErrFinalSave) {
		err = j.unsaved(newest(&j.Run, result), err)
	}
	err = j.survived(result, exit.Classify(ctx, err))
	j.balancing.End()
	if err == nil && result.Interrupted {
		err = j.interruption(ctx, result.Steps)
	}
	if writeErr := writeResult(&j.Run, result, err); writeErr != nil {
		if err == nil {
			err = exit.With(exit.IO, writeErr)
		} else {
			j.Opts.Log.Warn("the result cannot be written either", "error", writeErr)
		}
	}
	screen.End(result, err)
	j.records.SumUp(screen, result)
	if b := j.balancing; b != nil && b.Comparison != nil && (err == nil || errors.As(err, new(exit.Stopped))) {
		if reportErr := b.Comparison.Report(&j.Run); err == nil {
			err = reportErr
		}
	}
	return err
}

// openReplica checks that the memory is sufficient, before the run's folder changes, and loads the initial weights.
func (j *training) openReplica(ctx context.Context) error {
	if err := j.connect(ctx); err != nil {
		return err
	}
	options, err := j.ReplicaOptions()
	if err != nil {
		return err
	}
	if j.Replica, err = train.NewReplica(j.Device, options); err != nil {
		return err
	}
	j.Later(j.Replica.Close)
	return j.InitFrom()
}

func (j *training) loopOptions(resume *checkpoint.State, screen *observe.Console) (train.Options, error) {
	c := j.Cfg
	store, err := checkpoint.Open(j.Folder.CheckpointDir(), checkpoint.Options{Keep: c.Checkpoint.Keep})
	if err != nil {
		return train.Options{}, err
	}
	j.Later(store.Close)
	if resume != nil {
		if _, err := store.SetAside(resume.Step); err != nil {
			return train.Options{}, err
		}
	}
	if j.records, err = observe.OpenRecords(&j.Run, resume); err != nil {
		return train.Options{}, err
	}
	if err := j.balancing.ReportTo(screen, resume); err != nil {
		return train.Options{}, err
	}
	o, err := j.sharedOptions()
	o.Store, o.StoreDir, o.Resume = store, j.Folder.CheckpointDir(), resume
	all, watchErr := observe.Watchers(&j.Run, resume, screen, j.records, j.balancing.Observer())
	err = errors.Join(err, watchErr)
	o.Observer = rebalance.Muted{Observer: all, Quiet: j.balancing.Quiet}
	o.Beside = true
	o.SaveSteps, o.SaveInterval = int64(c.Checkpoint.IntervalSteps), session.Seconds(c.Checkpoint.IntervalSeconds)
	o.Template = checkpoint.State{Program: version.Text(), Seed: c.Experiment.Seed, Config: string(c.TOML()), Extra: j.Extra()}
	if c := j.Folder.Checkpoint; c != nil {
		o.Foreign = filepath.Dir(c.Path) != filepath.Clean(j.Folder.CheckpointDir())
	}
	return o, err
}

// sharedOptions returns the options that are equal on all ranks of a run.
func (j *training) sharedOptions() (o train.Options, err error) {
	c := j.Cfg
	o = train.Options{Replica: j.Replica, Schedule: j.Schedule(), Steps: int64(c.Train.Steps), Epochs: j.Epochs, MaxDuration: session.Seconds(c.Train.MaxSeconds),
		EvalInterval: c.Train.EvalInterval, EvalAverage: c.EMA.Evaluate, NormsInterval: int64(c.Train.NormsInterval), KeepBest: c.Checkpoint.Best,
		EarlyStop: train.EarlyStop{Metric: c.Train.EarlyStopMetric, Patience: c.Train.EarlyStopPatience, MinDelta: c.Train.EarlyStopMinDelta}, SaveRequests: j.saves.Load, SaveAgreed: func() { j.Agreed.Add(1) }, NaNPatience: c.Train.NaNPatience, NaNRollbacks: c.Train.NaNRollbacks, CompareSteps: process.CompareSteps}
	if c.Profile.Enabled {
		o.Telemetry = j.OpenTelemetry(j.balancing.Quiet)
	}
	if b := j.balancing; b != nil && b.Policy != nil {
		o.Splitter = b
	}
	weather := j.Opts.Lab.Weather != nil
	if j.tracing = observe.NewTracing(&j.Run); j.tracing != nil || weather {
		o.BeforeStep = func(step int64) {
			if weather {
				j.Lab.Before(step)
			}
			j.tracing.Before(step)
		}
	}
	if c.Data.Corrupt == "skip" {
		o.MaxReplaced = c.Data.CorruptLimit
	}
	if o.Train, err = j.NewLoader(j.Loading); err != nil || !j.Data.HasEval() {
		return o, err
	}
	o.Eval, err = j.NewLoader(j.Evaluating())
	return o, err
}
