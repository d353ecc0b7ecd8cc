// Package queue contains the common code of host communicators. It handles the order of operations, the thread that
// runs them, their events, and the first failure. An implementation adds a [Transport], which transfers the data of one
// operation.
package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Transport transfers the data of operations.
type Transport interface {
	// Do performs op on the communicator's thread. The parameter number is op's position in the communicator's order;
	// the first operation has position 1. On devices that model time, the parameter at is the earliest start of the
	// operation, and Do returns the time at which the operation ends.
	Do(op collective.Op, number uint64, at time.Duration) (time.Duration, error)
	// Fail is called once, from any goroutine, with the communicator's first failure. If Do is running, Fail must make
	// it return. Fail must also notify the other ranks, unless err came from another rank.
	Fail(err error)
	// Close is called once, after the last Do. orderly reports whether this rank has run all operations that it
	// enqueued.
	Close(orderly bool) error
}

// afterSlice is the interval at which a rank that waits for its own program checks whether the communicator has failed.
const afterSlice = 50 * time.Millisecond

// Queue implements collective.Communicator.
type Queue struct {
	rank, size int
	transport  Transport
	ended      chan struct{} // closed when the thread ends

	mu      sync.Mutex
	work    sync.Cond       // signals that queued has grown or closing is set
	queued  []collective.Op // ring buffer; the first operation is at head
	head, n int             // n is the number of operations in the buffer, including the running one
	drained chan struct{}   // closed when n reaches 0; nil if no goroutine waits
	at      collective.Progress
	err     error
	done    bool // the running operation has ended, but its Done event is not complete yet
	closing bool
}

// Options of a Queue.
type Options struct {
	Rank, Size int
	// OwnThread locks the goroutine that runs operations to an OS thread. It is for transports that block this
	// goroutine in C code.
	OwnThread bool
}

// New starts a communicator. The caller must end it with Close.
func New(t Transport, opts Options) *Queue {
	q := &Queue{at: collective.Progress{Rank: opts.Rank}, rank: opts.Rank, size: opts.Size, transport: t,
		ended: make(chan struct{}), queued: make([]collective.Op, 64)}
	q.work.L = &q.mu
	go func() {
		defer close(q.ended)
		if opts.OwnThread {
			runtime.LockOSThread()
		}
		q.run()
	}()
	return q
}

// Rank implements collective.Communicator.
func (q *Queue) Rank() int { return q.rank }

// Size implements collective.Communicator.
func (q *Queue) Size() int { return q.size }

// Enqueue implements collective.Communicator.
func (q *Queue) Enqueue(op collective.Op) error {
	if err := collective.Check(op, q.size); err != nil {
		return fmt.Errorf("collective: rank %d: %w", q.rank, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return q.err
	case q.closing:
		return fmt.Errorf("collective: rank %d: %s: %w", q.rank, collective.Describe(op), collective.ErrClosed)
	}
	if q.n == len(q.queued) {
		grown := make([]collective.Op, 2*q.n)
		copied := copy(grown, q.queued[q.head:])
		copy(grown[copied:], q.queued[:q.head])
		q.queued, q.head = grown, 0
	}
	q.queued[(q.head+q.n)%len(q.queued)] = op
	q.n++
	q.work.Signal()
	return nil
}

// Position implements collective.Positioner.
func (q *Queue) Position() collective.Progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at
}

// run is the communicator's thread.
func (q *Queue) run() {
	for number := uint64(1); ; number++ {
		op := q.next()
		if op == nil {
			return
		}
		q.perform(op, number)
		q.finished()
	}
}

// next returns the first operation of the queue, or nil when the communicator closes. The operation stays in the queue
// until it is finished.
func (q *Queue) next() collective.Op {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.n == 0 {
		if q.closing {
			return nil
		}
		q.work.Wait()
	}
	return q.queued[q.head]
}

func (q *Queue) finished() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued[q.head] = nil
	q.head = (q.head + 1) % len(q.queued)
	q.n--
	q.done = false
	if q.err == nil {
		q.at.Finished = q.at.Entered
	}
	if q.n == 0 && q.drained != nil {
		close(q.drained)
		q.drained = nil
	}
}

// perform runs op unless the communicator has failed, and completes its Done event in both cases.
func (q *Queue) perform(op collective.Op, number uint64) {
	tags := op.Tags()
	at, err := q.await(tags.After)
	if err != nil {
		err = fmt.Errorf("collective: rank %d: %s: its input event: %w", q.rank, collective.Describe(op), err)
	} else if q.enter(tags.Name, number) {
		at, err = q.transport.Do(op, number, at)
	}
	if err != nil {
		q.Fail(err)
	}
	q.mu.Lock()
	q.done = true // set before Done completes, because then another goroutine may call Close
	q.mu.Unlock()
	if err := complete(tags.Done, at); err != nil {
		q.Fail(fmt.Errorf("collective: rank %d: %s: signal its completion: %w", q.rank, collective.Describe(op), err))
	}
}

// enter records that this rank has entered an operation. It returns false if the communicator has failed.
func (q *Queue) enter(name string, number uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return false
	}
	q.at.Entered, q.at.Last = number, name
	return true
}

// await returns when the event e is complete or the communicator has failed. The result at is the modelled time at
// which e was completed; 0 if e has no modelled time.
func (q *Queue) await(e device.Event) (at time.Duration, err error) {
	if e == nil {
		return 0, nil
	}
	for q.Err() == nil {
		err := e.WaitHost(afterSlice)
		switch {
		case err == nil:
			if c, ok := e.(device.ClockedEvent); ok {
				at = c.CompletedAt()
			}
			return at, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
	}
	return 0, nil
}

func complete(e device.Event, at time.Duration) error {
	if e == nil {
		return nil
	}
	if c, ok := e.(device.ClockedEvent); ok {
		return c.CompleteAt(at)
	}
	return e.Complete()
}

// Fail sets the first failure. It does nothing if a failure is already set or the communicator is closed.
func (q *Queue) Fail(err error) {
	if q.failed(err) {
		q.transport.Fail(err)
	}
}

func (q *Queue) failed(err error) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || (q.closing && q.n == 0) {
		return false
	}
	q.err = err
	return true
}

// Err implements collective.Communicator.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Abort implements collective.Communicator.
func (q *Queue) Abort(cause error) {
	q.Fail(fmt.Errorf("collective: rank %d: %w: %w", q.rank, collective.ErrAborted, cause))
}

// Sync implements collective.Communicator.
func (q *Queue) Sync(ctx context.Context) error {
	q.mu.Lock()
	var drained chan struct{}
	if q.n > 0 {
		if q.drained == nil {
			q.drained = make(chan struct{})
		}
		drained = q.drained
	}
	q.mu.Unlock()
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return q.Err()
}

// Close implements collective.Communicator.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.closing {
		q.mu.Unlock()
		return fmt.Errorf("collective: rank %d: closed twice", q.rank)
	}
	left := q.n
	if q.done {
		left--
	}
	failed := q.err != nil
	q.mu.Unlock()
	var unfinished error
	if left > 0 && !failed {
		unfinished = fmt.Errorf("collective: rank %d: %w with %d unfinished operations", q.rank, collective.ErrClosed,
			left)
		q.Fail(unfinished)
	}
	q.mu.Lock()
	q.closing = true
	orderly := q.err == nil
	q.work.Signal()
	q.mu.Unlock()
	<-q.ended
	return errors.Join(unfinished, q.transport.Close(orderly))
}
