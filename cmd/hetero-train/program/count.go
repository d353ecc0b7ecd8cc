package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
)

// numbering is the outcome of counting the ranks of all nodes.
type numbering struct {
	first, total int
	err          error
}

// place is findPlace. Where each node knows only its own number of ranks, the nodes count them first, once per process.
func (a *app) place(ctx context.Context, cfg *config.Config, flags placeFlags) (discovery.Place, error) {
	place, err := findPlace(cfg, flags, a.overrides, a.env.environ)
	if err != nil || !place.Uncounted {
		return place, err
	}
	if a.counted == nil {
		a.counted = a.countRanks(ctx, cfg, place)
	}
	return place.Numbered(a.counted.first, a.counted.total), a.counted.err
}

// countRanks meets the other nodes where the ranks will meet.
func (a *app) countRanks(ctx context.Context, cfg *config.Config, place discovery.Place) *numbering {
	n := &numbering{}
	ctx, ended := untilStop(ctx, a.stops)
	n.first, n.total, n.err = func() (first, total int, err error) {
		token, err := readToken(cfg.Parallel.TokenFile, a.env)
		if err != nil {
			return 0, 0, err
		}
		if err := token.Check(); err != nil {
			return 0, 0, exit.With(exit.Usage, err)
		}
		log, err := logs.New(logs.NewScreen(logs.Below(a.env.stderr)), logs.NewScreen(io.Discard), a.logOptions(a.logLevel))
		if err != nil {
			return 0, 0, err
		}
		log = log.With(logs.ComponentKey, logs.ComponentCluster)
		addresses := place.Addresses()
		log.Info("waiting for the other nodes, to count the ranks of all", "node", place.Node, "of", place.Nodes,
			"own_ranks", place.LocalWorldSize, "meeting_at", place.Master())
		return a.env.count(ctx, rendezvous.Options{Rank: place.Node, WorldSize: place.Nodes, LocalRank: -1, Address: addresses[0],
			Alternatives: addresses[1:], Generation: place.Start, Token: token, Insecure: cfg.Parallel.Insecure,
			Timeout: seconds(cfg.Parallel.RendezvousTimeoutSeconds), Log: log}, place.LocalWorldSize)
	}()
	ended()
	if n.err == nil {
		n.err = context.Cause(ctx) // the signal was taken from what comes next
	}
	if n.err != nil {
		n.err = exit.Classify(ctx, fmt.Errorf("count the ranks of %d nodes (each node is one rank of this meeting): %w", place.Nodes, n.err))
	}
	return n
}

// untilStop returns a context that the next of the signals cancels. After ended, signals stay in the channel.
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
