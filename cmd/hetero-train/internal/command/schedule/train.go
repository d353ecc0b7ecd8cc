package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/device"
)

var trainLong = `Train the network of policy dqn by deep Q-learning on the simulator.

The program has a trained network for any cluster. Train another one to fit a cluster and its jobs better.

An episode is a list of jobs on a cluster: 60 jobs for each 16 GPUs. In a fraction of --random of the episodes, cluster and jobs are
random: numbers of machines, types of GPUs, speeds, running times. The other episodes are on the cluster of --input or --gpus, with a
random part of its jobs. Without files, they are on the default cluster, with generated jobs. The network works on any cluster.

With --ingested, the network also reads the normalised facts of schedule ingest. With --similarity, it reads the scores of a memory of
earlier placements (docs/scheduling.md). The built-in network uses neither; docs/benchmarks/scheduling.md compares networks with and
without them.

The built-in network decides when to deviate from policy gang. With --alone, the network decides without policy gang: it also learns
which job starts first and where, moves no running job, and cannot run jobs that need GPUs of several types.

The defaults are double DQN with prioritised replay and targets of ` + strconv.Itoa(dqn.Defaults().Steps) + ` rewards. The learning rate falls over the first ` + thousands(dqn.Defaults().Rate.Over) + `
episodes; later episodes train with the last, small rate. For other numbers of episodes, use --learning-rate FROM,TO,EPISODES.

The output folder gets a checkpoint at the end, every --save-minutes minutes, and when a signal stops the training. If the folder has a
checkpoint, the training resumes from it, and the network is bit-equal to that without the interruption.

Its subfolder ` + boardFolder + ` has the training curve for TensorBoard. --plots draws the curve.

To use the network: hetero-train schedule compare --policy dqn --network FOLDER`

const trainExample = `  hetero-train schedule train
  hetero-train schedule train --episodes 1000000 --output network --save-minutes 30
  hetero-train schedule train --episodes 2000 --learning-rate 1e-3,1e-5,2000 --plots curves
  hetero-train schedule train --output book --alone --double=false --prioritised=false --returns 1 --learning-rate 1e-4 --epsilon 1,0.05,7500
  hetero-train schedule train --input cluster.toml --input jobs.csv --default jobs.network=0 --random 0.2
  hetero-train schedule train --speeds simulation_throughputs.json --gpus v100=36/36,p100=36/36,k80=36/36 --trace a.trace`

// thousands shows a number with a comma before each group of three digits.
func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// replayBytes is the largest size of the replay memory. It is enough for 40,000 decisions on clusters of up to about 20
// machines with 8 GPUs each. On larger clusters, the memory holds fewer decisions.
const replayBytes = 1 << 30

type trainFlags struct {
	source
	learning learning
	episodes int64
	output   string
	plots    string // folder of the plots
	threads  int
	minutes  float64
}

func newTrain(a *cli.App) *cobra.Command {
	f := &trainFlags{source: source{policies: policies{command: "schedule train"}}}
	cmd := &cobra.Command{Use: "train", Short: "Train the network of policy dqn on the simulator", Long: trainLong,
		Example: trainExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.Int64Var(&f.episodes, "episodes", dqn.Defaults().Rate.Over, "episodes in total, including those of the checkpoint; all episodes that end at the same time as the last one count too; the default is that of the built-in network")
	flags.StringVar(&f.output, "output", "scheduler_network", "`FOLDER` of the checkpoints")
	flags.StringVar(&f.device, "device", "cpu", "device that trains the network: `auto|cpu|cuda|reference`")
	flags.IntVar(&f.threads, "threads", 0, "threads of the simulator; 0: one per CPU")
	flags.Float64Var(&f.minutes, "save-minutes", 5, "minutes between two checkpoints")
	flags.StringVar(&f.plots, "plots", "",
		"draw the training curve into this `FOLDER`, as PNG and SVG files, when the training ends or stops")
	f.learning.add(flags)
	f.addFiles(flags, "each episode takes a part of one of them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	return cmd
}

func (f *trainFlags) run(ctx context.Context, a *cli.App) (err error) {
	if err := f.check(a); err != nil {
		return err
	}
	lock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	dev, err := devices.Open(f.device, devices.Alone(1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	options, problem := &f.learning.options, f.learning.problem
	from := dqn.Source{Setup: f.setup, Lists: f.listed}
	problem.Input = from.Digest()
	if problem.Encoding.Ingested {
		problem.Encoding.Utilization, problem.Encoding.Temperature = measured(f.setup.Cluster)
	}
	wanted, numbers := options.Replay, problem.Shape(from).Floats()
	if options.Replay = min(options.Replay, replayBytes/(4*numbers)); options.Replay < options.Warm {
		return exit.Usagef("schedule train: the cluster has too many machines: a state of it has %d numbers, want at most %d; train on a part of the cluster: the network fits the whole",
			numbers, replayBytes/(4*options.Warm))
	}
	environments, err := dqn.NewEnvironments(options.Environments, problem, from)
	if err != nil {
		return fmt.Errorf("schedule train: %w", err)
	}
	text, err := json.Marshal(problem)
	if err != nil {
		return err
	}
	learner, resumed, err := f.learner(ctx, a, dev, environments, text)
	if err != nil {
		return fmt.Errorf("schedule train: %w", err)
	}
	defer func() { err = errors.Join(err, learner.Close()) }()
	if kept := learner.Options().Replay; kept < wanted {
		a.WarnOf(fmt.Sprintf("the replay memory keeps %d decisions instead of %d: a state of this cluster has %d numbers, and the memory is limited to %d MiB; "+
			"the training may need more episodes", kept, wanted, numbers, replayBytes>>20))
	}
	if f.plots != "" { // after all checks, so that a refused command does not leave a folder
		if err := os.MkdirAll(f.plots, 0o755); err != nil {
			return exit.With(exit.IO, fmt.Errorf("schedule train: --plots: %w", err))
		}
	}
	store, err := checkpoint.Open(f.output, checkpoint.Options{Keep: 2})
	if err != nil {
		return exit.With(exit.IO, fmt.Errorf("schedule train: %w", err))
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	err = f.train(ctx, a, learner, resumed, func(ctx context.Context) (checkpoint.Saved, error) {
		return learner.Save(ctx, store, version.Text(), text)
	})
	if f.plots != "" && (err == nil || ctx.Err() != nil) { // also draw the curve of a training that was interrupted
		err = errors.Join(err, drawCurve(a, learner, f.plots))
	}
	return err
}

// check checks the flags, and reads the files that they name.
func (f *trainFlags) check(a *cli.App) error {
	switch {
	case f.episodes < 1:
		return exit.Usagef("schedule train: --episodes: got %d, want at least 1", f.episodes)
	case f.threads < 0 || f.threads > runtime.NumCPU():
		return exit.Usagef("schedule train: --threads: got %d, want 0 to %d, the number of CPUs of this process",
			f.threads, runtime.NumCPU())
	case !(f.minutes > 0 && f.minutes <= 1e6):
		return exit.Usagef("schedule train: --save-minutes: got %v, want a number above 0, at most 1e6", f.minutes)
	case f.output == "":
		return exit.Usagef("schedule train: --output: got an empty name, want a folder name")
	}
	if err := f.learning.check(f.episodes); err != nil {
		return err
	}
	if f.threads == 0 {
		f.threads = runtime.NumCPU()
	}
	if err := f.read(a); err != nil {
		return err
	}
	if stateEstimates(f.listed) {
		a.WarnOf("columns estimate and estimate_error have no effect: the training uses the exact work of the jobs")
	}
	if f.learning.problem.Random == 1 && f.listed != nil {
		return exit.Usagef("schedule train: --random: got 1 with files of a cluster and jobs, want a number below 1: at 1, all episodes are on random clusters and no episode uses the files")
	}
	return nil
}

// lock creates the output folder and locks it, because two training runs in one folder would replace each other's
// checkpoints.
func (f *trainFlags) lock(ctx context.Context) (*filelock.Lock, error) {
	if err := os.MkdirAll(f.output, 0o755); err != nil {
		return nil, exit.Usagef("schedule train: --output: %w", err)
	}
	patience, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lock, err := filelock.Acquire(patience, filepath.Join(f.output, "train.lock"))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, exit.Usagef("schedule train: --output: another process trains in %s; choose another folder, or wait until that process ends",
			f.output)
	case err != nil:
		return nil, exit.With(exit.IO, fmt.Errorf("schedule train: %w", err))
	}
	return lock, nil
}

// learner resumes training from the newest checkpoint in the output folder. Without a checkpoint, it starts a new
// training run.
func (f *trainFlags) learner(ctx context.Context, a *cli.App, dev device.Device, environments []dqn.Environment,
	problem json.RawMessage) (learner *dqn.Learner, resumed bool, err error) {
	c, skipped, err := checkpoint.Latest(f.output)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		learner, err = dqn.NewLearner(dev, f.learning.options, f.threads, environments)
		return learner, false, err
	case err != nil:
		return nil, false, exit.With(exit.Data, err)
	}
	for _, s := range skipped {
		a.WarnOf(s.String())
	}
	if err = f.learning.resumable(c, problem); err == nil {
		if learner, err = dqn.Resume(ctx, dev, c, f.threads, environments, nil); ctx.Err() == nil {
			err = exit.With(exit.Data, err)
		}
	}
	if err = errors.Join(err, c.Close()); err != nil {
		if learner != nil {
			err = errors.Join(err, learner.Close())
		}
		return nil, false, err
	}
	a.Progress(fmt.Sprintf("resuming from %s: %d episodes", c.Path, learner.Progress().Episodes))
	return learner, true, nil
}

// train runs the learner, and saves it regularly and at the end. If resumed is true, the output folder already contains
// the start of this training.
func (f *trainFlags) train(ctx context.Context, a *cli.App, learner *dqn.Learner, resumed bool,
	save func(context.Context) (checkpoint.Saved, error)) (err error) {
	if done := learner.Progress().Episodes; done >= f.episodes {
		a.Progress(fmt.Sprintf("%s already has %d episodes; --episodes is %d", f.output, done, f.episodes))
		return nil
	}
	events, err := openPoints(a, f.output, learner, resumed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.close(a)) }()
	began := time.Now()
	next := progressEvery
	now := func() time.Duration { return time.Since(began) }
	report := func(p dqn.Progress) {
		events.add(p)
		if at := now(); at >= next {
			next = at + progressEvery
			a.Progress(trainText(p))
		}
	}
	for learner.Progress().Episodes < f.episodes {
		part, cancel := context.WithTimeout(ctx, time.Duration(f.minutes*float64(time.Minute)))
		err := learner.Run(part, f.episodes, now, report)
		cancel()
		if err != nil {
			err = fmt.Errorf("schedule train: %w", err)
			if errors.Is(err, dqn.ErrDiverged) {
				return exit.With(exit.Diverged, err)
			}
			return err
		}
		if p := learner.Progress(); p.Episodes >= f.episodes && p.Updates == 0 {
			a.WarnOf(fmt.Sprintf("the network is not trained: its weights are random, because the training begins after %d decisions and ended after %d; use a larger --episodes",
				learner.Options().Warm, p.Decisions))
		}
		saved, err := save(context.WithoutCancel(ctx))
		if err != nil {
			return exit.With(exit.IO, fmt.Errorf("schedule train: %w", err))
		}
		a.Progress(fmt.Sprintf("%s | saved %s", trainText(learner.Progress()), saved.Path))
		if ctx.Err() != nil {
			a.Progress("to resume, run the same command again")
			return context.Cause(ctx)
		}
	}
	return nil
}

// trainText returns a line about the progress.
func trainText(p dqn.Progress) string {
	text := fmt.Sprintf("episode %d of at least %d | %d decisions", p.Episodes, p.Target, p.Decisions)
	if !math.IsNaN(p.Return) {
		text += fmt.Sprintf(" | reward %.3g (mean of %d episodes) | error %.3g", p.Return, min(p.Episodes, 100),
			p.Error)
	}
	if p.Remaining > 0 {
		text += fmt.Sprintf(" | %.3g episodes/s | %s left", p.Rate, show.Duration(p.Remaining))
	}
	return text
}
