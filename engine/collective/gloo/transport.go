//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
)

// transport implements queue.Transport.
type transport struct {
	config     Config
	queue      *queue.Queue
	background sync.WaitGroup // watch, answerRoll, and the goroutine that disconnects
	ended      chan struct{}  // closed by Close
	relays     relays         // relays of the encrypted connections
	shape      Shape
	entered    atomic.Uint64      // number of operations that this rank has entered, including those of trial
	endRoll    context.CancelFunc // stops answerRoll

	// All threads except the communicator's own hold mu for reading while they use the connection. Close and die hold
	// mu for writing.
	mu     sync.RWMutex
	conn   *connection
	closed bool
	silent bool // tests: the rank pretends to be dead, and notifies no other rank
}

// afterwards is the time for which a rank that has lost a connection waits for the reason: either the other rank has
// left in order, or Control reports an error.
const afterwards = 2 * time.Second

// Do implements queue.Transport.
func (t *transport) Do(op collective.Op, number uint64, _ time.Duration) (time.Duration, error) {
	buffer, _, _ := op.Memory()
	var host []byte
	if buffer.Bytes > 0 {
		if host = buffer.Host(); host == nil {
			return 0, fmt.Errorf("gloo: rank %d: %s: got a buffer without host memory", t.config.Rank,
				collective.Describe(op))
		}
	}
	r := t.run(op, number, t.config.Timeout, host)
	if r.status == completed {
		return 0, nil
	}
	err := t.failure(op, number, t.config.Timeout, r)
	// Notify the other ranks before closing the connections, which takes some time. They then receive the reason first.
	t.queue.Fail(err)
	t.background.Go(func() {
		t.conn.disconnect()
		t.relays.expire()
	})
	return 0, err
}

// run performs one operation.
func (t *transport) run(op collective.Op, number uint64, limit time.Duration, host []byte) result {
	t.entered.Add(1)
	return t.conn.run(op, number, limit, host)
}

// failure returns the error for the result of an operation that was not completed.
func (t *transport) failure(op collective.Op, number uint64, limit time.Duration, r result) error {
	switch r.status {
	case timedOut:
		if t.conn.tree && len(r.missing) > 0 {
			var err error
			if r.missing, err = t.callTheRoll(limit); err != nil {
				return err
			}
		}
		err := &collective.TimeoutError{Op: collective.Describe(op), Number: number, Limit: limit, Missing: r.missing}
		if len(r.missing) == 0 {
			err.Behind = []int{r.rank}
		}
		return err
	case mismatched:
		return &collective.MismatchError{Rank: r.rank, Number: number, Got: r.got, Want: r.want}
	case peerGone:
		return t.lost(r)
	}
	if t.queue != nil && t.queue.Err() != nil {
		return t.queue.Err() // the failure that stopped the operation
	}
	return fmt.Errorf("gloo: rank %d: %s: stopped", t.config.Rank, collective.Describe(op))
}

// lost determines why a connection broke. Either the other rank left in order, or Control knows the lost rank and the
// cause. A rank that fails closes its connections, even if another rank caused the failure. Therefore, the first broken
// connection need not be a connection to the rank that caused the failure.
func (t *transport) lost(r result) error {
	if r.rank == t.config.Rank {
		return fmt.Errorf("gloo: rank %d: %s", r.rank, r.text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), afterwards)
	defer cancel()
	first := t.firstLost(ctx, r.rank)
	left := make(chan int, t.config.Size)
	for rank := range t.config.Size {
		go func() {
			if _, err := t.config.Control.Get(ctx, t.leftKey(rank)); err == nil {
				left <- rank
			}
		}()
	}
	select {
	case rank := <-left:
		return &collective.PeerError{Rank: rank, Cause: collective.ErrClosed}
	case <-t.config.Control.Broken():
		return t.config.broken()
	case <-ctx.Done():
	}
	text := r.text
	if err := t.relays.err(r.rank); err != nil {
		text = err.Error()
	}
	if first != r.rank {
		text = fmt.Sprintf("another rank noticed this first; the connection to rank %d then broke: %s", r.rank, text)
	}
	return &collective.PeerError{
		Rank: first, Cause: fmt.Errorf("%w, or its connection broke: %s", collective.ErrDied, text)}
}

func (t *transport) leftKey(rank int) string { return t.config.key("left/" + strconv.Itoa(rank)) }

// watch makes the communicator fail when Control breaks.
func (t *transport) watch() {
	select {
	case <-t.config.Control.Broken():
		t.queue.Fail(t.config.broken())
	case <-t.ended:
	}
}

// Fail implements queue.Transport.
func (t *transport) Fail(err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return
	}
	t.conn.stop()
	if _, fromOthers := err.(*collective.PeerError); fromOthers || t.silent || t.config.Size == 1 {
		// not errors.As: an error inside an abort's cause belongs to another group
		return
	}
	t.config.Control.Abort(err)
}

// Close implements queue.Transport.
func (t *transport) Close(orderly bool) error {
	var failed error
	if orderly && t.config.Size > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), afterwards)
		defer cancel()
		if failed = t.config.Control.Set(ctx, t.leftKey(t.config.Rank), []byte{1}); t.config.RankOf(failed) >= 0 {
			failed = nil // the other ranks have left
		}
		select {
		case <-t.config.Control.Broken():
			failed = nil // the other ranks are gone
		default:
		}
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	close(t.ended)
	if t.endRoll != nil {
		t.endRoll()
	}
	t.background.Wait()
	t.conn.close()
	t.relays.wait()
	if failed != nil {
		return fmt.Errorf("gloo: rank %d: close the connections: %w", t.config.Rank, failed)
	}
	return nil
}

// die simulates the death of the process, for tests: its operations end, and it notifies no other rank.
func (t *transport) die() {
	t.mu.Lock()
	t.silent = true
	t.mu.Unlock()
	t.queue.Fail(errors.Join(collective.ErrDied))
}
