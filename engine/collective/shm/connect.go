//go:build cgo && linux

package shm

import (
	"context"
	"fmt"
	"os"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// Available returns nil if Connect can work on this machine. Otherwise, the error states the reason.
func Available() error {
	_, err := openLibrary()
	return err
}

// Communicator is one rank's endpoint; it implements collective.Communicator, collective.Watcher and
// collective.Positioner.
type Communicator struct {
	*queue.Queue
	transport *transport
}

// Connect joins the group and returns when all ranks have joined. All ranks must call it. If ctx ends first, Connect
// returns an error. On rank 0, this error names the missing ranks. It returns ErrUnavailable if Available returns an
// error.
func Connect(ctx context.Context, c Config) (*Communicator, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	if c.StageBytes == 0 {
		c.StageBytes = DefaultStageBytes
	}
	var memory *os.File
	var peers []peer
	if c.Rank == 0 {
		memory, peers, err = gatherRanks(ctx, c, lib)
	} else {
		memory, peers, err = joinRanks(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("shm: rank %d of %d: %w", c.Rank, c.Size, err)
	}
	defer memory.Close() // the mapping keeps the memory alive
	g, err := lib.attach(memory, c.Rank, c.Size)
	if err != nil {
		closeAll(peers)
		return nil, fmt.Errorf("shm: rank %d of %d: %w", c.Rank, c.Size, err)
	}
	t := &transport{config: c, group: g, peers: peers}
	t.queue = queue.New(t, queue.Options{Rank: c.Rank, Size: c.Size, OwnThread: true})
	for _, p := range peers {
		t.watching.Go(func() { t.watch(p) })
	}
	return &Communicator{t.queue, t}, nil
}

// Progress implements collective.Watcher.
func (c *Communicator) Progress() []collective.Progress { return c.transport.Progress() }

// Die simulates kill -9 for conformance tests: this rank stops without notifying the other ranks.
func (c *Communicator) Die() { c.transport.die() }
