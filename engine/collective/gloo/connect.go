//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// Available returns nil if Connect can work in this program. Otherwise, the error states the reason.
func Available() error {
	_, err := openLibrary()
	return err
}

// Version returns the version of Gloo, for example "0.5.0"; "" if Gloo is unavailable.
func Version() string {
	lib, err := openLibrary()
	if err != nil {
		return ""
	}
	return lib.version()
}

// Communicator is one rank's endpoint; it implements collective.Communicator and collective.Positioner.
type Communicator struct {
	*queue.Queue
	transport *transport
}

// connectTime limits the time to connect if the context has no deadline.
const connectTime = 5 * time.Minute

// Connect connects this rank to all other ranks. All ranks must call it. It fails if ctx ends or Control breaks. It
// returns ErrUnavailable if Available returns an error. After any other error, the caller must abort Control, because
// the other ranks wait for this rank.
func Connect(ctx context.Context, c Config) (*Communicator, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("gloo: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTime)
		defer cancel()
	}
	conn, err := lib.open(c.Rank, c.Size)
	if err != nil {
		return nil, fmt.Errorf("gloo: rank %d of %d: %w", c.Rank, c.Size, err)
	}
	t := &transport{config: c, conn: conn, ended: make(chan struct{})}
	if c.Size > 1 {
		if err := c.join(ctx, conn, &t.relays); err != nil {
			conn.close()
			t.relays.wait()
			return nil, fmt.Errorf("gloo: rank %d of %d: connect: %w", c.Rank, c.Size, err)
		}
		var rolls context.Context
		rolls, t.endRoll = context.WithCancel(context.WithoutCancel(ctx))
		t.background.Go(func() { t.answerRoll(rolls) })
		if t.shape, err = t.choose(ctx); err != nil {
			if _, fromOthers := err.(*collective.PeerError); !fromOthers {
				c.Control.Abort(err) // before the connections close, so that other ranks first receive the reason
			}
			t.endRoll()
			t.background.Wait()
			conn.disconnect()
			t.relays.expire()
			conn.close()
			t.relays.wait()
			return nil, fmt.Errorf("gloo: rank %d of %d: measure the time of small operations: %w", c.Rank, c.Size, err)
		}
	}
	t.queue = queue.New(t, queue.Options{Rank: c.Rank, Size: c.Size, OwnThread: true})
	if c.Size > 1 {
		t.background.Go(t.watch)
	}
	return &Communicator{t.queue, t}, nil
}

// Shape returns the shape that the group uses: the path of small operations.
func (c *Communicator) Shape() Shape { return c.transport.shape }

// join connects to the other ranks and gives the sockets to Gloo. It fails when ctx ends or Control breaks.
func (c Config) join(ctx context.Context, conn *connection, relays *relays) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	meeting, err := c.open(ctx)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", c.Host+c.Interface, err)
	}
	defer meeting.close()
	over := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(over)
	watching.Go(func() {
		select {
		case <-over:
		case <-c.Control.Broken():
			cancel()
		}
	})
	if err := meeting.connect(ctx); err != nil {
		return err
	}
	for rank, socket := range meeting.sockets {
		if rank == c.Rank {
			continue
		}
		plain, err := relays.plain(rank, socket)
		if err == nil {
			meeting.sockets[rank] = nil // Gloo has its own descriptor, and a relay closes its connection
			err = conn.adoptConn(rank, plain)
			plain.Close()
		}
		if err != nil {
			return fmt.Errorf("hand the connection to rank %d over to Gloo: %w", rank, err)
		}
	}
	return nil
}

// adoptConn gives Gloo a copy of the descriptor of a connection.
func (c *connection) adoptConn(rank int, conn *net.TCPConn) error {
	fd, err := handle(conn)
	if err != nil {
		return err
	}
	return c.adopt(rank, fd)
}

// reason returns the error that join reports after err. If Control is broken or ctx has ended, this is the cause of
// err, so reason returns it instead.
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

// broken returns an error that describes why Control is broken.
func (c Config) broken() error {
	err := c.Control.Err()
	if rank := c.RankOf(err); rank >= 0 && rank != c.Rank {
		return &collective.PeerError{Rank: rank, Cause: err}
	}
	return fmt.Errorf("gloo: rank %d: %w", c.Rank, errors.Join(collective.ErrAborted, err))
}

// Die simulates kill -9 for conformance tests: this rank stops without notifying the other ranks.
func (c *Communicator) Die() { c.transport.die() }
