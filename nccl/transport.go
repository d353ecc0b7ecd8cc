//go:build cgo && linux

package nccl

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/device"
)

const (
	// agreeSlice is the interval at which a rank checks whether the communicator has failed, while it waits for the
	// other ranks' words.
	agreeSlice = 50 * time.Millisecond
	// After NCCL has reported a lost rank, this rank waits at most this long for the control communicator to name it.
	afterwards = 2 * time.Second
)

// transport implements queue.Transport.
type transport struct {
	config     Config
	control    collective.Communicator
	queue      *queue.Queue
	background sync.WaitGroup
	ended      chan struct{} // closed by Close

	enqueuing sync.Mutex // held while an operation enters the queue and Control, so that both have the same order
	number    uint64

	// Threads other than the communicator's thread hold mu for reading while they use the endpoint. Close holds mu for
	// writing.
	mu     sync.RWMutex
	end    *end
	closed bool

	slots  sync.Mutex
	flying []*slot // slots of in-flight operations, in order
	free   []*slot
}

func newTransport(c Config, e *end) *transport {
	return &transport{config: c, control: c.Control, end: e, ended: make(chan struct{})}
}

// Enqueue implements collective.Communicator. The ranks agree on an operation as soon as all have enqueued it, long
// before it runs.
func (c *Communicator) Enqueue(op collective.Op) error {
	t := c.transport
	t.enqueuing.Lock()
	defer t.enqueuing.Unlock()
	if err := collective.Check(op, c.Size()); err != nil || c.Err() != nil || t.isClosed() {
		return c.Queue.Enqueue(op) // rejects the operation and returns the error
	}
	t.number++
	s := t.begin(op)
	if err := t.control.Enqueue(s.word); err != nil {
		t.look()
		t.queue.Fail(fmt.Errorf("collective: rank %d: %s: %w", c.Rank(), collective.Describe(op), err))
		return c.Err()
	}
	return c.Queue.Enqueue(op)
}

func (t *transport) isClosed() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.closed
}

// begin takes a slot for the next operation.
func (t *transport) begin(op collective.Op) *slot {
	t.slots.Lock()
	defer t.slots.Unlock()
	var s *slot
	if n := len(t.free); n > 0 {
		s, t.free = t.free[n-1], t.free[:n-1]
	} else {
		s = newSlot(t.control.Rank(), t.control.Size())
	}
	s.take(op, t.number)
	t.flying = append(t.flying, s)
	return s
}

// Do implements queue.Transport.
func (t *transport) Do(op collective.Op, number uint64, _ time.Duration) (time.Duration, error) {
	s := t.first(number)
	if s == nil {
		return 0, fmt.Errorf("nccl: rank %d: %s: the ranks disagree on operation %d", t.control.Rank(),
			collective.Describe(op), number)
	}
	defer t.give(s)
	if err := s.started.Complete(); err != nil {
		return 0, err
	}
	for s.agreed.WaitHost(agreeSlice) != nil {
		if err := t.queue.Err(); err != nil {
			return 0, err
		}
	}
	if err := t.control.Err(); err != nil {
		return 0, t.translate(err)
	}
	if !s.byGPU && s.sig.Elements > 0 {
		return 0, nil // Control has performed it
	}
	if rank, theirs := s.differing(); rank >= 0 {
		return 0, &collective.MismatchError{Rank: rank, Number: number, Got: theirs.String(), Want: s.sig.String()}
	}
	if s.sig.Elements == 0 {
		return 0, nil
	}
	return 0, t.run(s)
}

// run performs an operation with NCCL.
func (t *transport) run(s *slot) error {
	buffer, _, _ := s.op.Memory()
	at, ok := addressOf(buffer)
	if !ok {
		return fmt.Errorf("nccl: rank %d: %s: its buffer was freed", t.control.Rank(), collective.Describe(s.op))
	}
	result := t.end.run(s.op, &s.sig, t.config.Timeout, at)
	switch result {
	case completed:
		return nil
	case timedOut:
		return &collective.TimeoutError{Op: collective.Describe(s.op), Number: s.number, Limit: t.config.Timeout}
	case stopped:
		if err := t.queue.Err(); err != nil {
			return err // the failure that stopped the operation
		}
	}
	if result == lostGPU {
		return fmt.Errorf("nccl: rank %d: %s: %w: %s", t.control.Rank(), collective.Describe(s.op), device.ErrDevice,
			t.end.why())
	}
	why := &Error{Rank: t.control.Rank(), Op: collective.Describe(s.op), Why: t.end.why()}
	for begin := time.Now(); result == peerGone && time.Since(begin) < afterwards; time.Sleep(queue.LookEvery / 4) {
		if err := t.control.Err(); err != nil {
			return t.translate(err)
		}
	}
	return why
}

// first returns the slot of the in-flight operation with the given number, or nil if no slot has this number.
func (t *transport) first(number uint64) *slot {
	t.slots.Lock()
	defer t.slots.Unlock()
	at := slices.IndexFunc(t.flying, func(s *slot) bool { return s.number == number })
	if at < 0 {
		return nil
	}
	return t.flying[at]
}

func (t *transport) give(s *slot) {
	t.slots.Lock()
	defer t.slots.Unlock()
	if t.queue.Err() != nil {
		return // not reused, because Control may still use the slot
	}
	if at := slices.Index(t.flying, s); at >= 0 {
		t.flying = slices.Delete(t.flying, at, at+1)
	}
	t.free = append(t.free, s)
}

// translate returns an error of the control communicator with the operation numbers of this communicator.
func (t *transport) translate(err error) error {
	switch e := err.(type) { // not errors.As: an error inside an abort's cause belongs to another group
	case *collective.PeerError:
		return &collective.PeerError{Rank: e.Rank, Cause: t.translate(e.Cause)}
	case *collective.TimeoutError:
		late := *e
		late.Number, late.Ranks = t.numbered(e.Number), nil
		t.slots.Lock()
		defer t.slots.Unlock()
		for _, s := range t.flying {
			if s.number == late.Number {
				late.Op = collective.Describe(s.op)
			}
		}
		return &late
	case *collective.MismatchError:
		m := *e
		m.Number = t.numbered(e.Number)
		return &m
	}
	return err
}

// numbered converts an operation number of the control communicator to a number of this communicator.
func (t *transport) numbered(control uint64) uint64 { return control - min(control, controlOps) }

// look marks this communicator as failed if the control communicator has failed.
func (t *transport) look() {
	if err := t.control.Err(); err != nil {
		t.queue.Fail(t.translate(err))
	}
}

// Fail implements queue.Transport.
func (t *transport) Fail(err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return
	}
	t.end.stop()
	t.control.Abort(err) // no effect if Control itself has failed
}

// Close implements queue.Transport.
func (t *transport) Close(orderly bool) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	close(t.ended)
	t.background.Wait()
	return errors.Join(t.end.close(orderly), t.control.Close())
}
