package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
)

// Train executes the training that cfg describes. This process is the only rank, one of several ranks, or the
// supervisor of ranks.
func Train(ctx context.Context, cfg *config.Config, opts session.Options) error {
	if err := process.CheckThreads(cfg, opts); err != nil {
		return err
	}
	if err := process.CheckFiles(cfg, opts, true); err != nil {
		return err
	}
	if err := checkMetrics(cfg, opts); err != nil {
		return err
	}
	if target := cfg.Tracking.MLflow; target != "" {
		if err := cmp.Or(config.CheckBareName(target), mlflow.CheckTarget(target)); err != nil {
			return exit.Usagef("tracking.mlflow: %w", err)
		}
	}
	if opts.Assignment.Launch && opts.Assignment.LocalWorldSize > 1 {
		err := process.Supervise(ctx, cfg, opts)
		reportLost(cfg, opts, err)
		return err
	}
	log := opts.Log
	if !cli.Informs(opts.Assignment) { // another rank of this machine logs the messages
		log = slog.New(slog.DiscardHandler)
	}
	tr := newTraining(compute.NewRank(cfg, opts))
	var err error
	if tr.lifeline, err = supervisor.OpenLifeline(opts.Env.Environ); err != nil {
		return err
	}
	if _, supervised := opts.Env.Lookup(session.SupervisedVariable); supervised {
		tr.lifeline.EndWithSupervisor(orphanTime)
	}
	tr.openDisk(ctx, opts.LogOf(logs.ComponentTrainer))
	ctx, release := signals.Context(ctx, opts.Signals, log, opts.Screen, &tr.saves, tr.looping.Load, tr.stopReceived)
	defer release()
	defer tr.process.CloseAll()
	defer tr.endReads(ctx)()
	if err := tr.openNotify(cfg, opts); err != nil {
		return err
	}
	for _, s := range tr.stages() {
		if err := tr.process.Open(ctx, s); err != nil {
			err = exit.Classify(ctx, beforeLoop(ctx, err))
			tr.rank.Team.Abort(err) // also after a signal, because other ranks may not have received it
			tr.settleResult(err)
			tr.reportEnd(err)
			err = tr.logError(err)
			if code := exit.Code(err); code == exit.Usage || code == exit.Data { // the other ranks wait
				tr.rank.Refuse(ctx, err)
			}
			return err
		}
		if tr.finished() {
			return exit.Classify(ctx, tr.endFinished())
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	tr.balancing.EndBy(end)
	err = tr.process.Open(ctx, session.Stage{Name: "training", Open: tr.train})
	looped := tr.looping.Load()
	if !looped {
		err = beforeLoop(ctx, err)
	}
	err = exit.Classify(ctx, err)
	tr.settleResult(err)
	tr.reportEnd(err)
	if err != nil && (!looped || !errors.As(err, new(exit.Stopped))) {
		// not after a signal in the loop: there, all ranks stop together
		tr.rank.Team.Abort(err)
	}
	return tr.logError(err)
}

// stages returns the stages that a run opens before its first step, in order.
func (tr *training) stages() []session.Stage {
	return []session.Stage{
		{Name: "device", Open: tr.openDevice},
		{Name: "data", Open: tr.run.OpenData},
		{Name: "model", Open: tr.run.CheckModel},
		{Name: "ranks", Open: tr.run.JoinTeam},
		{Name: "names of runs", Open: tr.runsByName},
		{Name: "precision", Open: tr.agreePrecision},
		{Name: "run", Open: tr.openRun},
		{Name: "replica", Open: tr.openReplica},
		{Name: "telemetry", Open: tr.openTelemetry},
		{Name: "metrics server", Open: tr.openMetrics},
		{Name: "testbed", Open: tr.openTestbed},
		{Name: "folder of the run", Open: tr.beginRun},
	}
}

// openDevice limits the growth of Go's heap, and opens the device of this rank.
func (tr *training) openDevice(ctx context.Context) error {
	tr.rank.HoldHeap()
	if err := tr.rank.CheckAddresses(); err != nil {
		return err
	}
	return tr.rank.OpenDevice(ctx)
}

// orphanTime is the longest time between the end of the supervisor and the end of a rank that has not begun its last
// save. With a shorter time, a rank with slow steps or a slow disk cannot save.
const orphanTime = 2 * time.Minute

// beforeLoop returns the error of a run that fails before the training loop. After a signal, it replaces the error of
// the interrupted operation by the signal, so that the other ranks know that the run was stopped.
func beforeLoop(ctx context.Context, err error) error {
	var s exit.Stopped
	if err != nil && errors.As(context.Cause(ctx), &s) {
		return s.BeforeSteps()
	}
	return err
}

// openTestbed prepares the testbed for this rank.
func (tr *training) openTestbed(ctx context.Context) (err error) {
	tr.run.Lab, err = testbed.Open(ctx, tr.rank)
	return err
}

// openTelemetry starts to read the sensors and links of this rank.
func (tr *training) openTelemetry(ctx context.Context) error {
	return tr.rank.OpenTelemetry(ctx, tr.balancing.Quiet)
}

// runsByName replaces the name of a run by its path in model.init_from and train.resume. Only rank 0 reads these runs,
// so other machines need not have them. It must run after JoinTeam, which compares the settings as the user wrote them.
// Later code reports a value that is neither a run nor a path.
func (tr *training) runsByName(context.Context) error {
	if !tr.rank.Team.Leads() {
		return nil
	}
	for _, value := range []*string{&tr.process.Cfg.Model.InitFrom, &tr.process.Cfg.Train.Resume} {
		if *value == experiment.ResumeAuto || *value == experiment.ResumeNone {
			continue
		}
		path, err := cli.InRuns(*value, tr.process.Cfg.Experiment.OutputDir)
		if _, missing := os.Stat(*value); err != nil && missing == nil {
			return err
		}
		if err == nil {
			*value = path
		}
	}
	return nil
}

// openRun determines whether the run starts from the beginning, resumes from a checkpoint, or is complete. It changes
// nothing on disk.
func (tr *training) openRun(ctx context.Context) (err error) {
	if tr.rank.Team.Leads() {
		source, err := tr.fetchCheckpoint(ctx)
		if err != nil {
			return err
		}
		if tr.run.Learnt, err = tr.run.Derive(ctx); err != nil {
			return err
		}
		options := tr.run.RunOptions()
		if source != nil {
			options.Source = source
		}
		run, err := experiment.Open(options)
		if err != nil {
			return err
		}
		if source != nil && source.fetched {
			tr.resumedFrom = source.folder.String()
		}
		tr.run.Folder = run
		tr.noteFolder(run.Dir)
		tr.process.Later(run.Close)
		if run.Checkpoint != nil {
			tr.process.Later(run.Checkpoint.Close)
		}
	}
	return tr.sendFinished(ctx)
}

// beginRun loads the checkpoint, and then prepares the folder of the run. It is the last stage, after all checks that
// could refuse the run, because a refused command must not change the records of the run.
func (tr *training) beginRun(ctx context.Context) error {
	if tr.rank.Team.Leads() {
		if err := tr.run.CheckResume(); err != nil {
			return err
		}
		var err error
		if tr.resume, err = tr.run.Restore(); err != nil {
			return err
		}
		begun, err := tr.openUploads(ctx)
		if err != nil {
			return err
		}
		if err := tr.run.Folder.Begin(); err != nil {
			return err
		}
		if err := begun(); err != nil {
			return err
		}
	}
	if err := tr.sendStart(ctx); err != nil {
		return err
	}
	return tr.recordMemory(ctx)
}

// train trains the replica, and writes the result.
func (tr *training) train(ctx context.Context) error {
	if !tr.rank.Team.Leads() {
		return tr.follow(ctx)
	}
	file, err := tr.run.Folder.OpenLog()
	if err != nil {
		return err
	}
	logFile := tr.logTo(file, filepath.Join(tr.run.Folder.LogDir(), experiment.LogFile))
	tr.process.Opts.LogFile.To(logFile)
	tr.run.LogOpened()
	stored := *tr.process.Cfg
	if dir := stored.Experiment.LogDir; dir != "" { // programs in other folders read the records, too
		if stored.Experiment.LogDir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	if err := tr.run.Folder.StoreConfig(string(stored.TOML()), version.Text()); err != nil {
		return err
	}
	tr.scores.SaveProfile()
	screen := observe.NewConsole(tr.run, logFile)
	defer screen.Close()
	screen.Begin(tr.resume)
	runOptions, err := tr.loopOptions(screen)
	if err != nil {
		return err
	}
	if err := tr.rank.Team.Ready(ctx); err != nil {
		return err
	}
	runOptions.Leaving = tr.leaves
	tr.looping.Store(true)
	if ctx.Err() != nil { // a signal canceled ctx
		tr.lifeline.Hold()
	}
	result, err := train.Run(ctx, runOptions)
	tr.timed.End()
	tr.disk.saved.Store(err == nil || result.Survived)
	tr.late = result.OutOfTime
	screen.Close()
	tr.tracing.Over(err)
	if errors.Is(err, train.ErrFinalSave) {
		err = tr.unsaved(newest(tr.run, result), err)
	}
	err = parts.AdviseDamage(&tr.process.Cfg.Data, err)
	err = tr.survived(result, exit.Classify(ctx, tr.stoppedReading(ctx, result, err)))
	tr.balancing.End()
	err = tr.endUploads(ctx, err)
	tr.logTraffic()
	if err == nil && result.Interrupted {
		err = tr.interruption(ctx, result.Steps)
	}
	if writeErr := tr.writeResult(result, err); writeErr != nil {
		if err == nil {
			err = exit.With(exit.IO, writeErr)
		} else {
			tr.process.Opts.Log.Warn("the run failed, and its result file cannot be written", "error", writeErr)
		}
	}
	screen.End(result, err)
	tr.disk.during("the summary of the run", func() { tr.records.SumUp(screen, result) })
	tr.tracking.End(result, err)
	if b := tr.balancing; b != nil && b.Comparison != nil && (err == nil || errors.As(err, new(exit.Stopped))) {
		if reportErr := b.Comparison.Report(tr.run); err == nil {
			err = reportErr
		}
	}
	return err
}

// openReplica builds the replica and loads the initial weights. If the memory does not suffice, it fails before the
// run's folder changes.
func (tr *training) openReplica(ctx context.Context) error {
	if err := tr.run.CheckInit(); err != nil {
		return err
	}
	if err := tr.connect(ctx); err != nil {
		return err
	}
	options, err := tr.replicaOptions()
	if err != nil {
		return err
	}
	if tr.run.Replica, err = replica.New(tr.rank.Device, options); err != nil {
		return compute.AdviseLimit(err, options.MicroBatch())
	}
	tr.process.Later(tr.run.Replica.Close)
	if err := tr.run.InitFrom(); err != nil {
		return err
	}
	return tr.keepToMemory(ctx)
}
