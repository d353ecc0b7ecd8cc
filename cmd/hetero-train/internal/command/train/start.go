package train

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Start loads the configuration, logs it, and runs the training. For the root command, flags is nil.
func Start(ctx context.Context, a *cli.App, flags *trainFlags) error {
	if runtime.GOOS == "windows" {
		return exit.Usagef("training does not run on Windows: use Linux, or Linux in WSL 2; on Windows, the program reads runs, plans and simulates")
	}
	stops, release := signals.Catch()
	defer release()
	a.Stops = stops
	if flags == nil {
		flags = new(trainFlags)
	}
	overrides, warnings, err := flags.resolve(ctx, a)
	if err != nil {
		return err
	}
	a.Overrides = overrides
	cfg, err := a.Read()
	if err != nil {
		return err
	}
	for _, s := range cfg.Superseded() {
		warnings = append(warnings, s.String())
	}
	if text := a.OtherRate(cfg); text != "" {
		warnings = append(warnings, text)
	}
	warnings = append(warnings, flags.withoutEffect(cfg)...)
	if err := assembly.Allowable(cfg, a.Allow); err != nil {
		return err
	}
	assigned, err := process.Assign(ctx, a, cfg, flags.LauncherFlags)
	if err != nil {
		return err
	}
	if err := cfg.CheckRanks(assigned.WorldSize); err != nil {
		if a.File != "" && !a.Overrode(err) {
			err = fmt.Errorf("%s: %w", a.File, err)
		}
		return exit.With(exit.Usage, err)
	}
	if a.Comparison != nil && (assigned.WorldSize < 2 || len(cfg.Balance.FixedShares) > 0) {
		return exit.Usagef("balance compare: got %d ranks and balance.fixed_shares = %v, want several ranks (scripts/lab.sh, a launcher, or --set parallel.ranks=2) and no fixed shares",
			assigned.WorldSize, cfg.Balance.FixedShares)
	}
	if assigned.WorldSize > 1 {
		if _, err := parts.Divide(cfg, assigned.WorldSize); err != nil {
			return err
		}
	}
	cfg, said, release, err := claimName(a, cfg, assigned)
	if err != nil {
		return err
	}
	defer release()
	setup, err := session.ReadTestbed(cfg, a.Env.Lookup)
	if err != nil {
		return err
	}
	a.Trains = a.Comparison == nil
	a.Env.Stdout, a.Env.Stderr = logs.Unblocked(a.Env.Stdout, a.Env.Stderr, a.LogFormat == logs.FormatJSON)
	opts, err := a.Options(assigned, a.LevelOf(assigned), logs.ComponentTrainer)
	if err != nil {
		return err
	}
	opts.Lab, opts.Comparison, opts.Allow, opts.Signals = setup, a.Comparison, a.Allow, stops
	opts.LogWhenGone()
	// If a supervisor started this rank, it has already logged the ranks.
	if _, supervised := a.Env.Lookup(session.SupervisedVariable); assigned.WorldSize > 1 && !supervised {
		opts.Log.Info(assigned.String(), logs.ComponentKey, logs.ComponentCluster)
	}
	for _, w := range said { // ranks that a supervisor started get the name from it and have no such warnings
		opts.Log.Warn(w)
	}
	if assigned.Rank == 0 { // ranks that a supervisor started have their own assignment
		for _, w := range assigned.Warnings {
			opts.Log.Warn(w)
		}
	}
	// A supervisor does not log the other warnings and the configuration, because rank 0, which it starts, logs them.
	if assigned.Rank == 0 && !(assigned.Launch && assigned.LocalWorldSize > 1) {
		for _, w := range warnings {
			opts.Log.Warn(w)
		}
		logConfig(opts.Log, a, cfg, assigned)
	}
	// Standard output is for the results of commands. Training has no result. With JSON, its standard output therefore
	// contains only log records.
	if a.LogFormat == logs.FormatJSON && a.Comparison == nil {
		opts.Env.Stdout = &logs.LineRecords{Log: opts.OnScreen}
	}
	if _, supervised := a.Env.Lookup(session.SupervisedVariable); cfg.Dashboard.Enabled && assigned.Rank == 0 &&
		!supervised {
		defer startDashboard(cfg, opts)()
	}
	return a.Env.Train(ctx, cfg, opts)
}

// logConfig logs the configuration in one line. If a flag contradicts the file, the line names the source of the value
// that is used.
func logConfig(log *slog.Logger, a *cli.App, cfg *config.Config, assigned discovery.Assignment) {
	ranks := assigned.WorldSize
	length := slog.Int("epochs", cfg.Train.Epochs)
	if cfg.Train.Steps > 0 {
		length = slog.Int("steps", cfg.Train.Steps)
	}
	perRank := slog.Any("batch_size_per_rank", cfg.Data.BatchSize/ranks)
	if len(cfg.Balance.FixedShares) > 0 {
		perRank = slog.Any("batch_size_per_rank", cfg.Balance.FixedShares)
	}
	log.Info("configuration", "file", a.File, "experiment", cfg.Experiment.Name, "model", cfg.Model.Name,
		"dataset", cfg.Data.Dataset, "device", cfg.Device.Kind, "precision", cfg.Train.Precision,
		"ranks", ranks, "batch_size_global", cfg.Data.BatchSize, perRank, "batch_size_from", batchSizeFrom(cfg), length,
		"optimizer", cfg.Optimizer.Name, "lr", cfg.Optimizer.LR, "policy", cfg.Balance.Policy, "policy_from",
		policyFrom(cfg))
	if ranks == 1 {
		for _, key := range []string{policyKey, "balance.interval"} {
			switch origin := cfg.Origin(key); origin {
			case "--" + enableFlag, "--load-balance-policy", "--rebalance-interval":
				log.Warn(origin + " has no effect: the run has one rank, so there is nothing to balance")
			}
		}
	}
	if ranks > 1 && cfg.Origin("balance.policy") == noBalancing {
		log.Info("policy none gives all ranks equal shares; --enable-load-balancing divides the batch by speed")
	}
}

// batchSizeFrom names the setting that determines the batch size. The text says whether this is the number of samples
// of one rank or of all ranks.
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

// policyFrom names the setting that determines the policy. Flags and files have different defaults.
func policyFrom(cfg *config.Config) string {
	origin := cfg.Origin("balance.policy")
	switch {
	case len(cfg.Balance.FixedShares) > 0:
		return "has no effect: balance.fixed_shares is set"
	case origin == "":
		return "default with a configuration file"
	case origin == "--"+enableFlag:
		return "default of " + origin
	case origin == noBalancing:
		return "default without a file and without --enable-load-balancing"
	}
	return origin
}
