package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/train"
)

// training is one training process while it lasts.
type training struct {
	Run
	records   *records             // of the rank that leads; nil on the others
	tracing   *tracing             // nil where no steps are traced
	balancing *balancing           // nil for a run of one rank
	lifeline  *supervisor.Lifeline // tells the supervisor that this rank saves
	saves     atomic.Int64         // SIGUSR1s of this rank so far
	looping   atomic.Bool          // steps are done, or about to be
}

// runTrain trains as cfg says: as a run of one rank, as one of several, or as their supervisor.
func runTrain(ctx context.Context, cfg *config.Config, opts trainOptions) error {
	if err := checkThreads(cfg, opts); err != nil {
		return err
	}
	if opts.place.Launch && opts.place.LocalWorldSize > 1 {
		return supervise(ctx, cfg, opts)
	}
	say := opts.log
	if !informs(opts.place) { // another rank says it
		say = slog.New(slog.DiscardHandler)
	}
	j := &training{Run: Run{Rank: newRank(cfg, opts)}}
	var err error
	if j.lifeline, err = supervisor.OpenLifeline(opts.env.environ); err != nil {
		return err
	}
	ctx, release := signals.Context(ctx, opts.signals, say, opts.screen, &j.saves, j.toldToStop)
	defer release()
	defer j.closeAll()
	for _, open := range []func(context.Context) error{j.openDevice, j.openData, j.checkModel, j.joinTeam, j.agreePrecision, j.openRun, j.openReplica, j.beginRun, j.openTestbed} {
		if err := open(ctx); err != nil {
			j.team.abort(err) // also for a signal: the others have not agreed on it
			var s exit.Stopped
			if errors.As(context.Cause(ctx), &s) {
				err = exit.With(s.Saved(), s) // whatever it interrupted
			}
			return j.tellLog(exit.Classify(ctx, err))
		}
		if j.finished() {
			return j.sayFinished()
		}
	}
	err = exit.Classify(ctx, j.train(ctx))
	if err != nil && !errors.As(err, new(exit.Stopped)) { // ranks stop together
		j.team.abort(err)
	}
	return j.tellLog(err)
}

// toldToStop is called for a signal that ends the run. A step may take longer than the supervisor waits.
func (j *training) toldToStop() {
	if j.looping.Load() {
		j.lifeline.Hold()
	}
}

// openTestbed brings this rank into the conditions that the configuration and the environment ask for.
func (j *training) openTestbed(ctx context.Context) (err error) {
	j.lab, err = openTestbed(ctx, &j.Rank)
	return err
}

// tellLog leaves the error of a rank that shows nothing in its own log.
func (j *training) tellLog(err error) error {
	if err != nil && !j.team.leads() {
		fmt.Fprintf(j.opts.logFile, "%v\n", err)
	}
	return err
}

// finished reports whether there is nothing left to do, and the other ranks know it.
func (j *training) finished() bool {
	if j.team != nil {
		return j.team.finished
	}
	return j.folder != nil && j.folder.Finished != nil
}

func (j *Rank) openDevice(context.Context) (err error) {
	threads := j.cfg.Device.Threads
	if threads == 0 && (j.localRanks() > 1 || j.opts.lab.place.CPUs > 0) {
		threads = j.ownCPUs()
		limit, err := cpu.ThreadLimit(j.opts.env.lookup)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		if limit > 0 {
			threads = min(threads, limit)
		}
	}
	if most := runtime.NumCPU(); threads > most {
		j.opts.log.Warn("device.threads: more than the CPUs of this process would only stand in each other's way", "got", threads, "using", most)
		threads = most
	}
	own := placement{index: j.cfg.Device.Index, localRank: j.opts.place.LocalRank, share: j.cfg.Device.ShareGPU, threads: threads, log: j.opts.logOf(logs.ComponentDevice)}
	kind := j.cfg.Device.Kind
	onCPU, err := j.isCPURank()
	if err != nil {
		return err
	}
	if onCPU {
		kind, own.index = "cpu", -1
	}
	if j.device, err = openDevice(kind, own); err != nil {
		return err
	}
	j.later(j.device.Close)
	if err := j.opts.lab.slow(j.device, j.opts.logOf(logs.ComponentLab)); err != nil {
		return err
	}
	if info := j.device.Info(); info.Modelled && j.opts.place.WorldSize > 1 {
		return exit.Usagef("device.kind: device %s has no memory that ranks in processes could exchange; it is for tests within one process", info.Name)
	}
	info := j.device.Info()
	if j.cfg.Train.Precision == "bf16" && info.Kind == "cpu" && !info.FastBF16 {
		j.opts.logOf(logs.ComponentDevice).Warn("bf16 is emulated on this CPU, which is many times slower than f32: set train.precision = \"auto\"", "device", info.Name)
	}
	j.precision, err = precisionFor(j.cfg.Train.Precision, info)
	return err
}

// openData opens the data set and the training loader, which knows how many steps an epoch has.
func (j *Run) openData(ctx context.Context) (err error) {
	if j.data, err = parts.OpenData(ctx, j.cfg, 0, j.opts.logOf(logs.ComponentData)); err != nil {
		return err
	}
	j.later(j.data.Splits.Close)
	j.epochs = j.cfg.Train.Epochs
	if most := j.cfg.Data.FallbackEpochs; j.data.Note != "" && most > 0 && j.cfg.Train.Steps == 0 {
		j.epochs = min(j.epochs, most)
	}
	if j.data.Note != "" {
		j.opts.logOf(logs.ComponentData).Warn(j.data.Note, "epochs", j.epochs, "configured_epochs", j.cfg.Train.Epochs)
	}
	j.warnOfUnused()
	if classes := j.data.Train.Classes(); len(classes) == 1 {
		j.opts.logOf(logs.ComponentData).Warn("the data set has a single class: there is nothing to learn", "class", classes[0])
	}
	view, _ := parts.Transforms(j.cfg.Data)
	view.Augment = parts.Augmentation(j.cfg.Augment, parts.Normalization(j.cfg.Data, j.data.Normalization))
	j.loading = data.Options{Dataset: j.data.Train, Transform: view, Mix: parts.Mixing(j.cfg.Augment), Seed: j.cfg.Experiment.Seed,
		BatchSize: j.cfg.Data.BatchSize, Accumulation: j.cfg.Train.GradAccumulation, Workers: j.cfg.Data.Workers}
	batches, err := j.loading.BatchesPerEpoch()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	j.stepsPer = int64(batches / j.cfg.Train.GradAccumulation)
	j.steps = int64(j.cfg.Train.Steps)
	if j.steps == 0 {
		j.steps = int64(j.epochs) * j.stepsPer
	}
	if name := j.cfg.Schedule.Name; j.steps == 0 && (name == "cosine" || name == "linear") {
		return exit.Usagef("schedule.name: %q falls to the end of the run, but only train.max_seconds ends this one: set train.epochs or train.steps, or use another schedule", name)
	}
	return exit.With(exit.Usage, j.schedule().Check())
}

func (j *Run) runOptions() experiment.Options {
	e, t := j.cfg.Experiment, j.cfg.Train
	epochs := t.Epochs
	if j.data != nil { // a fallback may end the run sooner
		epochs = j.epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: j.named(), LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs), Length: j.length(), Compare: j.compare}
}

// openRun decides how the run begins: afresh, from a checkpoint, or not at all because it is finished. It changes nothing on disk.
func (j *training) openRun(ctx context.Context) (err error) {
	if j.team.leads() {
		if j.learnt, err = j.derive(); err != nil {
			return err
		}
		run, err := experiment.Open(j.runOptions())
		if err != nil {
			return err
		}
		j.folder = run
		j.later(run.Close)
		if run.Checkpoint != nil {
			j.later(run.Checkpoint.Close)
		}
	}
	return j.tellFinished(ctx)
}

// beginRun makes the run's folder ready, once nothing else can refuse the run.
func (j *training) beginRun(ctx context.Context) error {
	if j.team.leads() {
		if err := j.folder.Begin(); err != nil {
			return err
		}
	}
	return j.tellStart(ctx)
}

// checkModel finds out whether the network fits the images, before anything is written.
func (j *Run) checkModel(context.Context) error {
	o, err := j.replicaOptions()
	if err != nil {
		return err
	}
	err = o.Check()
	var frozen *nn.FreezeError
	switch {
	case errors.As(err, &frozen) && frozen.Unmatched != "":
		return exit.Usagef("model.freeze: %w, %s; nearest: %s", frozen.Err, j.cfg.Model.Name, strings.Join(config.Nearest(frozen.Unmatched, frozen.Names, 3), ", "))
	case errors.As(err, &frozen):
		return exit.Usagef("model.freeze and model.freeze_layers: %w", frozen.Err)
	}
	if err != nil {
		return fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", j.cfg.Model.Name, j.cfg.Data.ImageSize, err)
	}
	return nil
}

// train builds, restores and runs the replica, and writes the result.
func (j *training) train(ctx context.Context) error {
	if !j.team.leads() {
		return j.follow(ctx)
	}
	file, err := j.folder.OpenLog()
	if err != nil {
		return err
	}
	j.later(file.Close)
	logFile := &logs.File{File: file, Screen: j.opts.onScreen}
	j.opts.logFile.To(logFile)
	j.sayOpened()
	resume, err := j.restore()
	if err != nil {
		return err
	}
	if err := j.folder.StoreConfig(string(j.cfg.TOML()), version.Text()); err != nil {
		return err
	}
	j.balancing.saveProfile()
	screen := newConsole(&j.Run, logFile)
	defer screen.close()
	screen.begin(resume)
	runOptions, err := j.loopOptions(resume, screen)
	if err != nil {
		return err
	}
	if err := j.team.ready(ctx); err != nil {
		return err
	}
	runOptions.Leaving = j.lifeline.Hold
	j.looping.Store(true)
	if ctx.Err() != nil { // by a signal that came before
		j.lifeline.Hold()
	}
	result, err := train.Run(ctx, runOptions)
	screen.close()
	j.tracing.over(err)
	if errors.Is(err, train.ErrFinalSave) {
		err = j.unsaved(j.newest(result), err)
	}
	err = j.survived(result, exit.Classify(ctx, err))
	j.balancing.end()
	if err == nil && result.Interrupted {
		err = j.interruption(ctx, result.Steps)
	}
	if writeErr := j.writeResult(result, err); writeErr != nil {
		if err == nil {
			err = exit.With(exit.IO, writeErr)
		} else {
			j.opts.log.Warn("the result is not written either", "error", writeErr)
		}
	}
	screen.end(result, err)
	j.records.sumUp(screen, result)
	if b := j.balancing; b != nil && b.contest != nil && (err == nil || errors.As(err, new(exit.Stopped))) {
		if reportErr := b.contest.report(&j.Run); err == nil {
			err = reportErr
		}
	}
	return err
}

// openReplica finds out whether memory suffices, before the run's folder is touched, and loads the weights to start from.
func (j *training) openReplica(ctx context.Context) error {
	if err := j.connect(ctx); err != nil {
		return err
	}
	options, err := j.replicaOptions()
	if err != nil {
		return err
	}
	if j.replica, err = train.NewReplica(j.device, options); err != nil {
		return err
	}
	j.later(j.replica.Close)
	return j.initFrom()
}

func (j *training) loopOptions(resume *checkpoint.State, screen *console) (train.Options, error) {
	c := j.cfg
	store, err := checkpoint.Open(j.folder.CheckpointDir(), checkpoint.Options{Keep: c.Checkpoint.Keep})
	if err != nil {
		return train.Options{}, err
	}
	j.later(store.Close)
	if resume != nil {
		if _, err := store.SetAside(resume.Step); err != nil {
			return train.Options{}, err
		}
	}
	if j.records, err = j.openRecords(resume); err != nil {
		return train.Options{}, err
	}
	if err := j.balancing.reportTo(screen, resume); err != nil {
		return train.Options{}, err
	}
	o, err := j.sharedOptions()
	o.Store, o.StoreDir, o.Resume = store, j.folder.CheckpointDir(), resume
	all, watchErr := j.watchers(resume, screen, j.records, j.balancing.observer())
	err = errors.Join(err, watchErr)
	o.Observer = muted{all, j.balancing.quiet}
	o.Beside = true
	o.SaveSteps, o.SaveInterval = int64(c.Checkpoint.IntervalSteps), seconds(c.Checkpoint.IntervalSeconds)
	o.Template = checkpoint.State{Program: version.Text(), Seed: c.Experiment.Seed, Config: string(c.TOML()), Extra: j.extra()}
	if c := j.folder.Checkpoint; c != nil {
		o.Foreign = filepath.Dir(c.Path) != filepath.Clean(j.folder.CheckpointDir())
	}
	return o, err
}

// sharedOptions are those that all ranks of a run have.
func (j *training) sharedOptions() (o train.Options, err error) {
	c := j.cfg
	o = train.Options{Replica: j.replica, Schedule: j.schedule(), Steps: int64(c.Train.Steps), Epochs: j.epochs, MaxDuration: seconds(c.Train.MaxSeconds),
		EvalInterval: c.Train.EvalInterval, EvalAverage: c.EMA.Evaluate, NormsInterval: int64(c.Train.NormsInterval), KeepBest: c.Checkpoint.Best,
		EarlyStop: train.EarlyStop{Metric: c.Train.EarlyStopMetric, Patience: c.Train.EarlyStopPatience, MinDelta: c.Train.EarlyStopMinDelta}, SaveRequests: j.saves.Load, SaveAgreed: func() { j.agreed.Add(1) }, NaNPatience: c.Train.NaNPatience, NaNRollbacks: c.Train.NaNRollbacks, CompareSteps: compareSteps}
	if c.Profile.Enabled {
		o.Load = j.openLoad(j.balancing.quiet)
	}
	if b := j.balancing; b != nil && b.policy != nil {
		o.Splitter = b
		if b.contest != nil {
			o.Enough = func() bool { return b.contest.done }
		}
	}
	weather := j.opts.lab.weather != nil
	if j.tracing = newTracing(&j.Run); j.tracing != nil || weather {
		o.BeforeStep = func(step int64) {
			if weather {
				j.lab.before(step)
			}
			j.tracing.before(step)
		}
	}
	if c.Data.Corrupt == "skip" {
		o.MaxReplaced = c.Data.CorruptLimit
	}
	if o.Train, err = j.newLoader(j.loading); err != nil || j.data.Eval == nil {
		return o, err
	}
	_, view := parts.Transforms(c.Data)
	o.Eval, err = j.newLoader(data.Options{Dataset: j.data.Eval, Transform: view, Seed: c.Experiment.Seed,
		BatchSize: c.Data.BatchSize / c.Train.GradAccumulation, Evaluate: true, Workers: c.Data.Workers})
	return o, err
}

// newLoader reads this rank's share.
func (j *Run) newLoader(o data.Options) (*data.Loader, error) {
	if p := j.team.joined(); p != nil {
		share, most := p.Reads()
		o.Share, o.MaxCount = &share, most
		if o.Workers == 0 {
			o.Workers = j.ownCPUs()
		}
	}
	l, err := data.NewLoader(o)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	j.later(l.Close)
	return l, nil
}
