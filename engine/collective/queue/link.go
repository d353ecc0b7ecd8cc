package queue

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// Link is an event between two communicators of one rank. One communicator completes the event, and the other waits for
// it. After Clear, a Link can be reused without allocating.
type Link struct {
	over  atomic.Bool
	token chan struct{} // Complete puts a token in, and WaitHost takes it out
	timer *time.Timer
}

// NewLink returns a pending link.
func NewLink() *Link {
	l := &Link{token: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// Clear makes the link pending again. No goroutine may use the link during the call.
func (l *Link) Clear() {
	l.over.Store(false)
	select {
	case <-l.token:
	default:
	}
}

// Complete implements device.Event.
func (l *Link) Complete() error {
	l.over.Store(true)
	select {
	case l.token <- struct{}{}:
	default:
	}
	return nil
}

// WaitHost implements device.Event. It may be called once after each Clear.
func (l *Link) WaitHost(limit time.Duration) error {
	l.timer.Reset(limit)
	select {
	case <-l.token:
		l.timer.Stop()
		return nil
	case <-l.timer.C:
		return os.ErrDeadlineExceeded
	}
}

// Done implements device.Event.
func (l *Link) Done() bool { return l.over.Load() }

// Reset implements device.Event. It always returns an error, because the owner of a link must call Clear instead.
func (l *Link) Reset() error { return errors.New("queue: a link cannot be reset") }

// Close implements device.Event.
func (l *Link) Close() error { return nil }
