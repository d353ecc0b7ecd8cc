package hosts

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/device"
)

// start is what the first stage waits for: the end of an operation before that uses the same memory, and the operation's own
// After event.
type start struct{ f *flight }

func (s *start) WaitHost(limit time.Duration) error {
	f, c := s.f, s.f.comm
	if err := c.awaitTurn(f); err != nil {
		return noticeOf(err, c.opts.Rank)
	}
	if f.after != nil {
		if err := f.after.WaitHost(limit); errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		} else if err != nil {
			c.fail(fmt.Errorf("collective: rank %d: %s: its input event: %w", c.opts.Rank, collective.Describe(f.op), err))
			return noticeOf(c.Err(), c.opts.Rank)
		}
	}
	c.enter(f)
	return nil
}

func (s *start) Done() bool      { return s.f.after == nil || s.f.after.Done() }
func (s *start) Reset() error    { return nil } // it is the caller's to reset
func (s *start) Complete() error { return nil }
func (s *start) Close() error    { return nil }

// CompletedAt and CompleteAt implement device.ClockedEvent.
func (s *start) CompletedAt() time.Duration {
	if c, ok := s.f.after.(device.ClockedEvent); ok {
		return c.CompletedAt()
	}
	return 0
}

func (s *start) CompleteAt(time.Duration) error { return nil }

// finish is what the last stage completes: the end of the operation.
type finish struct{ f *flight }

func (e *finish) CompleteAt(at time.Duration) error {
	f := e.f
	for i := range f.links { // after a failure the stages before may still be giving up: Done says that the buffer is free
		f.links[i].settle()
	}
	f.comm.look() // whoever sees Done asks Err
	f.comm.end(f) // and may close, or enqueue the operation again, at once
	switch done := f.done.(type) {
	case nil:
		return nil
	case device.ClockedEvent:
		return done.CompleteAt(at)
	default:
		return done.Complete()
	}
}

func (e *finish) Complete() error            { return e.CompleteAt(0) }
func (e *finish) CompletedAt() time.Duration { return 0 }
func (e *finish) Done() bool                 { return false }
func (e *finish) Reset() error               { return nil }
func (e *finish) Close() error               { return nil }
func (e *finish) WaitHost(time.Duration) error {
	return errors.New("hosts: no goroutine waits for the in-flight operation")
}

// link joins two stages: one inner communicator completes it, one waits for it. If anything has failed by then, waiting is an
// error, so that no stage takes what the stage before it did not finish.
type link struct {
	*queue.Link // nil where no stage waits for it
	comm        *Communicator
	at          time.Duration // valid when it is done
}

func (l *link) prepare(c *Communicator) { l.comm, l.Link = c, queue.NewLink() }

// clear makes it ready for the next flight.
func (l *link) clear() {
	if l.Link != nil {
		l.Clear()
	}
}

func (l *link) CompleteAt(at time.Duration) error {
	l.at = at
	return l.Link.Complete()
}

// settle returns when the stage before it, if there is one, has ended in whatever way.
func (l *link) settle() {
	for l.Link != nil && !l.Done() {
		time.Sleep(time.Millisecond)
	}
}

func (l *link) WaitHost(limit time.Duration) error {
	if err := l.Link.WaitHost(limit); err != nil {
		return err
	}
	if err := l.comm.Err(); err != nil {
		return noticeOf(err, l.comm.opts.Rank) // the inner communicator may tell others sooner than Abort does
	}
	return nil
}

func (l *link) Complete() error            { return l.CompleteAt(0) }
func (l *link) CompletedAt() time.Duration { return l.at }
func (l *link) Reset() error               { l.clear(); return nil }
