package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

const trainExample = `  hetero-train train -c configs/resnet50.toml
  hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 1000 --batch-size 32 --epochs 2
  hetero-train train -c configs/resnet50.toml --batch-size 64 --lr 0.05`

const trainLong = `Train a model. "hetero-train train -c FILE" and "hetero-train -c FILE" are the same.

Each flag below stands for one key of the file and takes precedence over it, with two differences:
--batch-size counts for each rank (the key data.batch_size is the global batch: both are printed), and
--backend nccl falls back to gloo, with a warning, where there is no GPU.
Without -c the balancing policy is "none" unless --enable-load-balancing is given.`

func newTrain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "train",
		Short:   "Train a model",
		Long:    trainLong,
		Example: trainExample,
		Args:    noArguments,
	}
	flags := addTrainFlags(cmd, a)
	addResume(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.train(cmd.Context(), flags) }
	return cmd
}

// trainOptions is what a run needs besides its configuration.
type trainOptions struct {
	env      environment
	log      *slog.Logger
	onScreen *slog.Logger // log without the log file
	screen   *logs.Screen // where log writes
	logFile  *logs.Screen // likewise, from when the run has a log file
	place    discovery.Place
	lab      labSetup
	contest  *contestFlags  // of policies; nil: a run with one
	json     bool           // messages are JSON objects, progress too
	file     string         // of the configuration, "" without one
	args     []string       // the command line, for the run's records
	signals  chan os.Signal // that end the run; they are caught from the start
	allow    []string       // keys that may differ from the earlier run's
}

// train resolves the configuration, says what will run, and runs it. flags is nil for the root command.
func (a *app) train(ctx context.Context, flags *trainFlags) error {
	stops, release := signals.Catch()
	defer release()
	a.stops = stops
	if flags == nil {
		flags = new(trainFlags)
	}
	overrides, warnings, err := flags.resolve(ctx, a)
	if err != nil {
		return err
	}
	a.overrides = overrides
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := allowable(cfg, a.allow); err != nil {
		return err
	}
	place, err := a.place(ctx, cfg, flags.placeFlags)
	if err != nil {
		return err
	}
	if err := cfg.CheckRanks(place.WorldSize); err != nil {
		if a.file != "" && !a.overrode(err) {
			err = fmt.Errorf("%s: %w", a.file, err)
		}
		return exit.With(exit.Usage, err)
	}
	if a.contest != nil && (place.WorldSize < 2 || len(cfg.Balance.FixedShares) > 0) {
		return exit.Usagef("balance compare: got %d ranks and balance.fixed_shares = %v, want several ranks (scripts/lab.sh, a launcher, or --set parallel.ranks=2) and no fixed shares", place.WorldSize, cfg.Balance.FixedShares)
	}
	if place.WorldSize > 1 {
		if _, err := divide(cfg, place.WorldSize); err != nil {
			return err
		}
	}
	setup, err := readLab(cfg, a.env)
	if err != nil {
		return err
	}
	a.trains = a.contest == nil
	a.env.stdout, a.env.stderr = logs.Unblocked(a.env.stdout, a.env.stderr, a.logFormat == logs.FormatJSON)
	opts, err := a.options(place, a.levelOf(place), logs.ComponentTrainer)
	if err != nil {
		return err
	}
	opts.lab, opts.contest, opts.allow, opts.signals = setup, a.contest, a.allow, stops
	opts.sayWhenGone()
	if _, supervised := a.env.lookup(supervisedVariable); place.WorldSize > 1 && !supervised { // of its ranks the supervisor has said it
		opts.log.Info(place.String(), logs.ComponentKey, logs.ComponentCluster)
	}
	if place.Rank == 0 && !(place.Launch && place.LocalWorldSize > 1) { // a supervisor leaves the rest to rank 0
		for _, w := range append(warnings, place.Warnings...) {
			opts.log.Warn(w)
		}
		warnOfAddressLimit(opts.log)
		logConfig(opts.log, a, cfg, place)
	}
	if a.logFormat == logs.FormatJSON && a.contest == nil { // standard output carries results of commands; a training has none but its records
		opts.env.stdout = &logs.LineRecords{Log: opts.onScreen}
	}
	return a.env.train(ctx, cfg, opts)
}

// sayWhenGone logs that the reader of a stream has left. Training goes on.
func (o trainOptions) sayWhenGone() {
	say := func(name string, w io.Writer) {
		if stream := logs.OutletOf(w); stream != nil {
			stream.OnGone(func(err error) {
				o.log.Warn(name+" is closed: training continues, and train.log has all lines", "error", err)
			})
		}
	}
	say("standard error", o.env.stderr)
	say("standard output", o.env.stdout) // one outlet may serve both
}

// logOf is the log with a component in place of the trainer's.
func (o trainOptions) logOf(component string) *slog.Logger {
	return o.log.With(logs.ComponentKey, component)
}

// levelOf is the least important message of a rank that is shown.
func (a *app) levelOf(place discovery.Place) string {
	if !place.Launch && !informs(place) && a.logLevel == "info" {
		return "warn"
	}
	return a.logLevel
}

// informs reports whether a rank shows messages that are the same on all ranks: rank 0 does, the first rank of each machine, and a rank that has a
// terminal of its own.
func informs(place discovery.Place) bool {
	return place.Rank == 0 || place.LocalRank == 0 || place.OwnOutput
}

// options are what every command that opens parts of a run needs besides its configuration. It shows messages from level on, each of component where that is not "".
// Messages for a log file wait until there is one.
func (a *app) options(place discovery.Place, level, component string) (trainOptions, error) {
	o := trainOptions{env: a.env, screen: logs.NewScreen(logs.Below(a.env.stderr)), logFile: logs.NewScreen(new(bytes.Buffer)), place: place,
		json: a.logFormat == logs.FormatJSON, file: a.file, args: a.args}
	format := a.logOptions(level)
	format.InFile = a.logLevel
	if place.WorldSize > 1 && !place.Launch {
		format.Each = []slog.Attr{slog.Int("from_rank", place.Rank)}
	}
	for _, l := range []struct {
		logger **slog.Logger
		file   *logs.Screen
	}{{&o.log, o.logFile}, {&o.onScreen, logs.NewScreen(io.Discard)}} {
		log, err := logs.New(o.screen, l.file, format)
		if err != nil {
			return o, err
		}
		if *l.logger = log; component != "" {
			*l.logger = log.With(logs.ComponentKey, component)
		}
	}
	return o, nil
}

// overrode reports whether all that is wrong was set on the command line, and not in the file.
func (a *app) overrode(err error) bool {
	var faulty *config.Error
	return errors.As(err, &faulty) && !slices.ContainsFunc(faulty.Faults, func(f config.Fault) bool {
		return !slices.ContainsFunc(a.overrides, func(o config.Override) bool { return o.Key == f.Key })
	})
}

// logConfig says in one line what will run. Where a flag and the file mean different things, it says which of them decided.
func logConfig(log *slog.Logger, a *app, cfg *config.Config, place discovery.Place) {
	ranks := place.WorldSize
	length := slog.Int("epochs", cfg.Train.Epochs)
	if cfg.Train.Steps > 0 {
		length = slog.Int("steps", cfg.Train.Steps)
	}
	perRank := slog.Any("batch_size_per_rank", cfg.Data.BatchSize/ranks)
	if len(cfg.Balance.FixedShares) > 0 {
		perRank = slog.Any("batch_size_per_rank", cfg.Balance.FixedShares)
	}
	log.Info("configuration", "file", a.file, "experiment", cfg.Experiment.Name, "model", cfg.Model.Name,
		"dataset", cfg.Data.Dataset, "device", cfg.Device.Kind, "precision", cfg.Train.Precision,
		"ranks", ranks, "batch_size_global", cfg.Data.BatchSize, perRank, "batch_size_from", batchSizeFrom(cfg), length,
		"optimizer", cfg.Optimizer.Name, "lr", cfg.Optimizer.LR, "policy", cfg.Balance.Policy, "policy_from", policyFrom(cfg))
}

// batchSizeFrom says what set the batch size, and what it counts there.
func batchSizeFrom(cfg *config.Config) string {
	switch origin := cfg.Origin("data.batch_size"); origin {
	case "":
		return "default, global"
	case "--batch-size":
		return origin + ", per rank"
	default:
		return origin + ", global"
	}
}

// policyFrom says what set the balancing policy. The defaults of flags and files differ.
func policyFrom(cfg *config.Config) string {
	origin := cfg.Origin("balance.policy")
	switch {
	case len(cfg.Balance.FixedShares) > 0:
		return "balance.fixed_shares take its place"
	case origin == "":
		return "default of a file"
	case origin == "--enable-load-balancing":
		return "default of " + origin
	case origin == "no --enable-load-balancing":
		return "default without a file and without --enable-load-balancing"
	}
	return origin
}

// warnOfAddressLimit tells of ulimit -v. The Go runtime and the libraries of devices reserve addresses that they never fill, and what the runtime cannot
// reserve ends the program: a limit of memory belongs into a control group, which is respected when a batch is planned.
func warnOfAddressLimit(log *slog.Logger) {
	const ample = 4 << 30
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit); err == nil && limit.Cur < ample {
		log.Warn("the address space is limited (ulimit -v): where that does not suffice the program dies with \"cannot allocate memory\" and exit code 134; limit memory with a control group instead",
			"limit_mib", limit.Cur>>20)
	}
}
