//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// Available says why Connect cannot work in this program, nil if it can.
func Available() error {
	_, err := openLibrary()
	return err
}

// Version is Gloo's, for example "0.5.0"; empty where it is not available.
func Version() string {
	lib, err := openLibrary()
	if err != nil {
		return ""
	}
	return lib.version()
}

// Communicator is one rank's end; it implements collective.Communicator and collective.Positioner.
type Communicator struct {
	*queue.Queue
	transport *transport
}

// connectTime is how long connecting may take where the context has no deadline.
const connectTime = 5 * time.Minute

// Connect connects to all other ranks and returns when that is done. All ranks call it; it gives up when ctx ends or Control
// breaks. The error is ErrUnavailable where Available says so.
func Connect(ctx context.Context, c Config) (*Communicator, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("gloo: %w", err)
	}
	conn, err := lib.open(c.Rank, c.Size, c.Host, c.Interface)
	if err != nil {
		return nil, fmt.Errorf("gloo: rank %d of %d: listen on %q: %w", c.Rank, c.Size, c.Host+c.Interface, err)
	}
	if c.Size > 1 {
		if err := join(ctx, c, conn); err != nil {
			conn.close()
			return nil, fmt.Errorf("gloo: rank %d of %d: connect: %w", c.Rank, c.Size, err)
		}
	}
	t := &transport{config: c, conn: conn, ended: make(chan struct{})}
	t.queue = queue.New(t, queue.Options{Rank: c.Rank, Size: c.Size, OwnThread: true})
	if c.Size > 1 {
		t.background.Go(t.watch)
	}
	return &Communicator{t.queue, t}, nil
}

// join connects to the others while it serves Gloo's store from Control.
func join(ctx context.Context, c Config, conn *connection) error {
	limit := connectTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			key, value, ok := conn.next()
			if !ok {
				return
			}
			serving.Go(func() {
				err := error(nil)
				if value != nil {
					err = c.Control.Set(ctx, c.key(key), value)
				} else if value, err = c.Control.Get(ctx, c.key(key)); err == nil {
					conn.put(key, value)
				}
				if err != nil {
					cancel(err)
				}
			})
		}
	})
	connected := make(chan struct{})
	serving.Go(func() {
		select {
		case <-connected:
		case <-c.Control.Broken():
			cancel(c.broken())
			conn.stop()
		case <-ctx.Done():
			conn.stop()
		}
	})
	err := conn.connect(limit)
	close(connected)
	failed := context.Cause(ctx)
	cancel(nil)
	serving.Wait()
	if err != nil && failed != nil {
		return failed
	}
	return err
}

// broken is what the end of Control means here.
func (c Config) broken() error {
	err := c.Control.Err()
	if rank := c.RankOf(err); rank >= 0 && rank != c.Rank {
		return &collective.PeerError{Rank: rank, Cause: err}
	}
	return fmt.Errorf("gloo: rank %d: %w", c.Rank, errors.Join(collective.ErrAborted, err))
}

// Die ends this rank as kill -9 would: the others find out, nothing is said. For conformance suites.
func (c *Communicator) Die() { c.transport.die() }
