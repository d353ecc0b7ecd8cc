package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/notify"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/checkpoint/bucket"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
)

// training is the state of one process that trains.
type training struct {
	process *session.Session
	rank    *compute.Rank
	run     *assembly.Run
	// state of the checkpoint that rank 0 has loaded; nil for a new run, and on other ranks
	resume      *checkpoint.State
	records     *observe.Records       // set on rank 0 only; nil on other ranks
	timed       *observe.Timed         // set on rank 0 only; nil on other ranks
	tracing     *observe.Tracing       // nil if the configuration selects no steps
	balancing   *rebalance.Balancer    // nil in a run of one rank
	scores      *rebalance.Balancer    // compute scores of all ranks, also in a run of one rank
	tracking    *observe.Tracking      // nil if tracking.mlflow is empty, and on other ranks
	exporter    *observe.Exporter      // nil if this rank serves no metrics
	sender      *notify.Sender         // nil if table [notify] names no receiver, and on other ranks
	watch       *notify.Watch          // nil if sender is nil
	folder      atomic.Pointer[string] // path of the run's folder, for events; nil before the run has one
	bucketBytes int64                  // size limit of gradient buckets that tune chose; 0: that of the configuration
	lifeline    *supervisor.Lifeline   // tells the supervisor that this rank is saving
	disk        disk                   // queue of records, and operations on the disk that have not returned
	uploads     *bucket.Uploader       // nil if checkpoint.upload is empty, and on other ranks
	resumedFrom string                 // folder of the bucket from which the run resumes; "": none
	saves       atomic.Int64           // number of SIGUSR1 signals of this process so far
	late        bool                   // train.max_seconds ended the run
	looping     atomic.Bool            // true since shortly before the training loop
}

// newTraining returns the training of a rank, without open components.
func newTraining(rank *compute.Rank) *training {
	return &training{process: rank.Process, rank: rank, run: assembly.Of(rank)}
}

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

// logError writes the error of any rank except rank 0 to the log of this rank.
func (tr *training) logError(err error) error {
	if err != nil && !tr.rank.Team.Leads() {
		fmt.Fprintf(tr.process.Opts.LogFile, "%v\n", err)
	}
	return err
}

// finished reports whether the run is complete. All ranks get the same result.
func (tr *training) finished() bool {
	if tr.rank.Team != nil {
		return tr.rank.Team.Finished.Run
	}
	return tr.run.Folder != nil && tr.run.Folder.Finished != nil
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
