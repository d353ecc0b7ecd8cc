package compute

import (
	"context"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
)

// OnRanks loads the configuration. If this process is a rank, OnRanks calls work. Otherwise it starts the ranks of this
// machine, and each of them calls work. The parameter reads is true for a command that reads samples.
func OnRanks(ctx context.Context, a *cli.App, f *cli.LauncherFlags, reads bool,
	work func(context.Context, *Rank) error) error {
	stops, release := signals.Catch()
	defer release()
	a.Stops = stops
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	assigned, err := process.Assign(ctx, a, cfg, *f)
	if err != nil {
		return err
	}
	setup, err := session.ReadTestbed(cfg, a.Env.Lookup)
	if err != nil {
		return err
	}
	a.Env.Stdout, a.Env.Stderr = logs.Unblocked(a.Env.Stdout, a.Env.Stderr, a.LogFormat == logs.FormatJSON)
	opts, err := a.Options(assigned, a.LevelOf(assigned), logs.ComponentTrainer)
	if err != nil {
		return err
	}
	opts.Lab, opts.Signals = setup, stops
	if assigned.Rank == 0 {
		for _, w := range assigned.Warnings {
			opts.Log.Warn(w)
		}
	}
	if err := process.CheckThreads(cfg, opts); err != nil {
		return err
	}
	if err := process.CheckFiles(cfg, opts, reads); err != nil {
		return err
	}
	if assigned.Launch && assigned.LocalWorldSize > 1 {
		return process.StartRanks(ctx, opts)
	}
	ctx, done := signals.Context(ctx, stops, slog.New(slog.DiscardHandler), opts.Screen, nil, nil, nil)
	defer done()
	k := NewRank(cfg, opts)
	defer k.Process.CloseAll()
	err = exit.Classify(ctx, work(ctx, k))
	if err != nil {
		k.Team.Abort(err)
	}
	return err
}
