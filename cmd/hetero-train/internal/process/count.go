package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
)

// Assign returns the result of findAssignment. If each node knows only its own number of ranks, the nodes first exchange
// these numbers, once per process.
func Assign(ctx context.Context, a *cli.App, cfg *config.Config, flags cli.LauncherFlags) (discovery.Assignment, error) {
	assigned, err := findAssignment(cfg, flags, a.Overrides, a.Env.Environ)
	if err != nil || !assigned.Uncounted {
		return assigned, err
	}
	if a.Counted == nil {
		a.Counted = countRanks(ctx, a, cfg, assigned)
	}
	return assigned.Numbered(a.Counted.First, a.Counted.Total), a.Counted.Err
}

// countRanks exchanges the numbers of ranks with the other nodes, at the address of the rendezvous.
func countRanks(ctx context.Context, a *cli.App, cfg *config.Config, assigned discovery.Assignment) *cli.Numbering {
	n := &cli.Numbering{}
	ctx, ended := untilStop(ctx, a.Stops)
	n.First, n.Total, n.Err = func() (first, total int, err error) {
		token, err := ReadToken(cfg.Parallel.TokenFile, a.Env)
		if err != nil {
			return 0, 0, err
		}
		if err := token.Check(); err != nil {
			return 0, 0, exit.With(exit.Usage, err)
		}
		log, err := logs.New(logs.NewScreen(logs.Below(a.Env.Stderr)), logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
		if err != nil {
			return 0, 0, err
		}
		log = log.With(logs.ComponentKey, logs.ComponentCluster)
		addresses := assigned.Addresses()
		log.Info("waiting until the other nodes report their number of ranks", "node", assigned.Node, "of", assigned.Nodes,
			"own_ranks", assigned.LocalWorldSize, "meeting_at", assigned.Master())
		return a.Env.Count(ctx, rendezvous.Options{Rank: assigned.Node, WorldSize: assigned.Nodes, LocalRank: -1, Address: addresses[0],
			Alternatives: addresses[1:], Generation: assigned.Start, Token: token, Insecure: cfg.Parallel.Insecure,
			Timeout: session.Seconds(cfg.Parallel.RendezvousTimeoutSeconds), Log: log}, assigned.LocalWorldSize)
	}()
	ended()
	if n.Err == nil {
		n.Err = context.Cause(ctx) // the caller cannot receive this signal again
	}
	var stopped exit.Stopped
	switch {
	case errors.As(context.Cause(ctx), &stopped):
		n.Err = exit.With(stopped.Saved(), stopped)
	case n.Err != nil:
		n.Err = exit.Classify(ctx, fmt.Errorf("exchange the numbers of ranks of %d nodes (\"rank N\" in this message means node N): %w", assigned.Nodes, n.Err))
	}
	return n
}

// untilStop returns a context that the next signal cancels. After a call of ended, signals remain in the channel.
func untilStop(ctx context.Context, stops chan os.Signal) (_ context.Context, ended func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case got := <-stops:
			cancel(exit.Stopped{Signal: got.(syscall.Signal)})
		case <-done:
		}
	})
	return ctx, func() {
		close(done)
		waiting.Wait()
	}
}
