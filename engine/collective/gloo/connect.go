//go:build cgo && linux

package gloo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
// breaks. The error is ErrUnavailable where Available says so. On any other the caller aborts Control: the others wait for this rank.
func Connect(ctx context.Context, c Config) (*Communicator, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("gloo: %w", err)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(connectTime)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	conn, err := lib.open(c.Rank, c.Size, c.Host, c.Interface, time.Until(deadline))
	if err != nil {
		return nil, fmt.Errorf("gloo: rank %d of %d: listen on %q: %w", c.Rank, c.Size, c.Host+c.Interface, err)
	}
	if c.Size > 1 {
		if err := c.join(ctx, conn); err != nil {
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

// join connects to the others. What it waits for ends when ctx does, or Control.
func (c Config) join(ctx context.Context, conn *connection) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	over, ended := make(chan struct{}), false
	watching.Go(func() {
		select {
		case <-over:
			return
		case <-c.Control.Broken():
		case <-ctx.Done():
		}
		ended = true
		cancel()
		conn.disconnect()
	})
	err := c.meet(ctx, conn)
	close(over)
	watching.Wait() // nobody disconnects from here on
	if ended && err == nil {
		err = c.reason(ctx, context.Canceled)
	}
	return err
}

// reason is why joining ends with err.
func (c Config) reason(ctx context.Context, err error) error {
	select {
	case <-c.Control.Broken():
		return c.broken()
	default:
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return cause
	}
	return err
}

// meet exchanges addresses and connects to one rank after another. A rank says where it listens before it connects to anybody, which may end
// its part at once: the others need to know all the same.
func (c Config) meet(ctx context.Context, conn *connection) error {
	own := make([][]byte, c.Size) // by the rank that is to use it
	for rank := range own {
		if rank != c.Rank {
			own[rank] = conn.address(rank)
		}
	}
	word, err := json.Marshal(own)
	if err == nil {
		err = c.Control.Set(ctx, c.addressesKey(c.Rank), word)
	}
	if err != nil {
		return fmt.Errorf("say where this rank listens: %w", c.reason(ctx, err))
	}
	for rank := range c.Size {
		if rank == c.Rank {
			continue
		}
		theirs, err := c.addressesOf(ctx, rank)
		if err != nil {
			return fmt.Errorf("wait for rank %d to say where it listens: %w", rank, c.reason(ctx, err))
		}
		if err := conn.connect(rank, theirs[c.Rank]); err != nil {
			return fmt.Errorf("wait for the connection with rank %d: %w", rank, c.reason(ctx, err))
		}
	}
	return nil
}

// addressesOf waits until another rank has said where it listens.
func (c Config) addressesOf(ctx context.Context, rank int) (addresses [][]byte, err error) {
	word, err := c.Control.Get(ctx, c.addressesKey(rank))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(word, &addresses); err != nil {
		return nil, err
	}
	if len(addresses) != c.Size {
		return nil, fmt.Errorf("got %d addresses, want %d", len(addresses), c.Size)
	}
	return addresses, nil
}

func (c Config) addressesKey(rank int) string { return c.key("listens/" + strconv.Itoa(rank)) }

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
