package program

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/engine/config"
)

// addTo adds the flags that say which ranks take part, of commands that measure on all of them.
func (f *placeFlags) addTo(cmd *cobra.Command, a *app) {
	for _, k := range []struct{ flag, key, kind, usage string }{
		{"nproc-per-node", "parallel.ranks", "int", "ranks on this machine"},
		{"master-addr", "parallel.master_addr", "string", "host of rank 0"},
		{"master-port", "parallel.master_port", "int", "TCP port of rank 0"},
	} {
		cmd.Flags().Var(&keyFlag{app: a, flag: k.flag, key: k.key, kind: k.kind}, k.flag, fmt.Sprintf("%s (%s)", k.usage, k.key))
	}
	cmd.Flags().BoolFunc("insecure", "let ranks of several machines meet without a token (parallel.insecure)", func(text string) error {
		a.overrides = append(a.overrides, config.Override{Origin: "--insecure", Key: "parallel.insecure", Value: text})
		return nil
	})
	cmd.Flags().StringVar(&f.nodes, "nnodes", "", "`machines` that take part, each of which starts its own ranks")
	cmd.Flags().StringVar(&f.nodeRank, "node-rank", "", "`number` of this machine among them, from 0")
}

// onRanks resolves the configuration and does work as one rank, or starts the ranks of this machine, each of which does.
func (a *app) onRanks(ctx context.Context, f *placeFlags, work func(context.Context, *Rank) error) error {
	stops, release := signals.Catch()
	defer release()
	a.stops = stops
	cfg, err := a.load()
	if err != nil {
		return err
	}
	place, err := a.place(ctx, cfg, *f)
	if err != nil {
		return err
	}
	setup, err := readLab(cfg, a.env)
	if err != nil {
		return err
	}
	a.env.stdout, a.env.stderr = logs.Unblocked(a.env.stdout, a.env.stderr, a.logFormat == logs.FormatJSON)
	opts, err := a.options(place, a.levelOf(place), logs.ComponentTrainer)
	if err != nil {
		return err
	}
	opts.lab, opts.signals = setup, stops
	if place.Rank == 0 {
		for _, w := range place.Warnings {
			opts.log.Warn(w)
		}
	}
	if err := checkThreads(cfg, opts); err != nil {
		return err
	}
	if place.Launch && place.LocalWorldSize > 1 {
		return startRanks(ctx, opts)
	}
	ctx, done := signals.Context(ctx, stops, slog.New(slog.DiscardHandler), opts.screen, nil, nil)
	defer done()
	j := newRank(cfg, opts)
	defer j.closeAll()
	err = exit.Classify(ctx, work(ctx, &j))
	if err != nil {
		j.team.abort(err)
	}
	return err
}
