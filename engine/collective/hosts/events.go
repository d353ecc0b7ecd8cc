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

// start is the After event of the first stage. It is complete when two conditions hold: the operation's After event is
// complete, and no earlier operation uses the same memory.
type start struct{ f *inFlight }

func (s *start) WaitHost(limit time.Duration) error {
	f, c := s.f, s.f.comm
	if err := c.awaitTurn(f); err != nil {
		return noticeOf(err, c.opts.Rank)
	}
	if f.after != nil {
		if err := f.after.WaitHost(limit); errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		} else if err != nil {
			c.fail(fmt.Errorf("collective: rank %d: %s: its input event: %w", c.opts.Rank, collective.Describe(f.op),
				err))
			return noticeOf(c.Err(), c.opts.Rank)
		}
	}
	c.enter(f)
	return nil
}

func (s *start) Done() bool      { return s.f.after == nil || s.f.after.Done() }
func (s *start) Reset() error    { return nil } // the caller resets its own event
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

// finish is the Done event of the last stage. Its completion ends the operation.
type finish struct{ f *inFlight }

func (e *finish) CompleteAt(at time.Duration) error {
	f := e.f
	for i := range f.links { // Done means that the buffer is free, but after a failure, earlier stages may still run
		f.links[i].settle()
	}
	f.comm.look() // so that Err returns the failure when the caller sees Done
	f.comm.end(f) // from now on, the caller may close, or enqueue the operation again
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

// link connects two stages: one inner communicator completes it, and another waits for it. After a failure, the wait
// returns an error, so that no stage uses incomplete data of the previous stage.
type link struct {
	*queue.Link // nil if no stage waits for it
	comm        *Communicator
	at          time.Duration // modelled time; valid when the link is done
}

func (l *link) prepare(c *Communicator) { l.comm, l.Link = c, queue.NewLink() }

// clear makes the link pending, for the next use of its operation.
func (l *link) clear() {
	if l.Link != nil {
		l.Clear()
	}
}

func (l *link) CompleteAt(at time.Duration) error {
	l.at = at
	return l.Link.Complete()
}

// settle waits until the previous stage, if there is one, has ended with or without an error.
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
		return noticeOf(err, l.comm.opts.Rank) // the inner communicator may send the error before Abort does
	}
	return nil
}

func (l *link) Complete() error            { return l.CompleteAt(0) }
func (l *link) CompletedAt() time.Duration { return l.at }
func (l *link) Reset() error               { l.clear(); return nil }
