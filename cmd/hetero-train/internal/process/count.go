package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Assign determines the rank of this process and the world size (findAssignment). If each node knows only its own
// number of ranks, the nodes exchange these numbers, once per process.
func Assign(ctx context.Context, a *cli.App, cfg *config.Config, flags cli.LauncherFlags) (discovery.Assignment,
	error) {
	assigned, err := findAssignment(cfg, flags, a.Overrides, a.Env.Environ)
	if err != nil {
		return assigned, err
	}
	if err := nativelib.Loadable(); err != nil && (assigned.WorldSize > 1 || assigned.Uncounted) {
		return assigned, exit.Usagef("several ranks need native libraries to exchange gradients, and %w; a run of one rank (parallel.ranks = 1) needs none",
			err)
	}
	if !assigned.Uncounted {
		return assigned, nil
	}
	if a.Counted == nil {
		a.Counted = countRanks(ctx, a, cfg, assigned)
	}
	return assigned.Numbered(a.Counted.First, a.Counted.Total), a.Counted.Err
}

// countRanks exchanges the numbers of ranks with the other nodes. The nodes meet at the address of the rendezvous.
func countRanks(ctx context.Context, a *cli.App, cfg *config.Config, assigned discovery.Assignment) *cli.Numbering {
	n := &cli.Numbering{}
	ctx, ended := untilStop(ctx, a.Stops)
	n.First, n.Total, n.Err = func() (first, total int, err error) {
		own, err := ReadCredentials(cfg.Parallel, a.Env)
		if err != nil {
			return 0, 0, err
		}
		log, err := logs.New(logs.NewScreen(logs.Below(a.Env.Stderr)), logs.NewScreen(io.Discard),
			a.LogOptions(a.LogLevel))
		if err != nil {
			return 0, 0, err
		}
		log = log.With(logs.ComponentKey, logs.ComponentCluster)
		addresses := assigned.Addresses()
		log.Info("waiting until the other nodes report their number of ranks", "node", assigned.Node, "of",
			assigned.Nodes,
			"own_ranks", assigned.LocalWorldSize, "meeting_at", assigned.Master())
		return a.Env.Count(ctx, rendezvous.Options{Rank: assigned.Node, WorldSize: assigned.Nodes, LocalRank: -1,
			Address:      addresses[0],
			Alternatives: addresses[1:], Generation: assigned.Start, Token: own.Token, Certificates: own.Certificates,
			Insecure: cfg.Parallel.Insecure,
			Timeout:  session.Seconds(cfg.Parallel.RendezvousTimeoutSeconds), Log: log}, assigned.LocalWorldSize)
	}()
	ended()
	if n.Err == nil {
		n.Err = context.Cause(ctx) // the signal is no longer in the channel, so the caller cannot receive it
	}
	var stopped exit.Stopped
	switch {
	case errors.As(context.Cause(ctx), &stopped):
		n.Err = exit.With(stopped.Saved(), stopped)
	case n.Err != nil:
		n.Err = countFailed(ctx, assigned.Nodes, n.Err)
	}
	return n
}

// countFailed returns the error of countRanks. Only communication errors get a prefix. Other errors, such as a wrong
// token or another program on the port, are faults of this node.
func countFailed(ctx context.Context, nodes int, err error) error {
	err = exit.Classify(ctx, ofNodes(err))
	switch code := exit.Code(err); code {
	case exit.Communication, exit.Unexpected:
		return exit.With(code, fmt.Errorf("the %d nodes could not exchange their rank counts: %w", nodes, err))
	}
	return err
}

// A nodeError is a rendezvous error whose text calls the members of the group nodes instead of ranks.
type nodeError struct {
	error
	text string
}

func (e nodeError) Error() string { return e.text }
func (e nodeError) Unwrap() error { return e.error }

// memberTexts match the parts of rendezvous errors that mean members of the group, for example "ranks 1 to 3" and "for
// 4 ranks". They do not match parts that mean the ranks of a node, as in "got -1 ranks on this node".
var memberTexts = []struct {
	rank *regexp.Regexp
	node string
}{
	{regexp.MustCompile(`\brank(s? \d)`), "node$1"},
	{regexp.MustCompile(`\b(for|group of) (\d+) ranks\b`), "$1 $2 nodes"},
	{regexp.MustCompile(`\bthis rank\b`), "this node"},
}

// ofNodes replaces "rank" by "node" where the text of a rendezvous error means the members of the group.
func ofNodes(err error) error {
	text := err.Error()
	for _, m := range memberTexts {
		text = m.rank.ReplaceAllString(text, m.node)
	}
	return nodeError{err, text}
}

// untilStop returns a context that the next signal in stops cancels. After a call of ended, later signals remain in the
// channel.
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
