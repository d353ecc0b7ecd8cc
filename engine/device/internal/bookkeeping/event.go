package bookkeeping

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Event is pending, complete or failed.
type Event struct {
	dev *Device

	mu     sync.Mutex
	now    outcome
	over   *settled // shares the outcome with waiters; nil if there are none
	closed bool
}

// outcome is the result of an event.
type outcome struct {
	over bool
	err  error         // error of the run that failed
	at   time.Duration // time of completion on the device's clock, if the device models time
}

// settled holds the outcome for waiters, even if the event is reset before they wake.
type settled struct {
	done chan struct{} // closed when outcome is valid
	outcome
}

var _ device.ClockedEvent = (*Event)(nil)

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	return &Event{dev: d}, nil
}

// Event returns e as an event of this device, or an error.
func (d *Device) Event(e device.Event) (*Event, error) {
	ev, ok := e.(*Event)
	if !ok || ev == nil || ev.dev != d {
		return nil, fmt.Errorf("got an event of another device (%T), want one of %s", e, d.Name)
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.closed {
		return nil, fmt.Errorf("got a closed event")
	}
	return ev, nil
}

// use locks the event unless it is closed.
func (e *Event) use() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fmt.Errorf("%s: event is closed", e.dev.Name)
	}
	return nil
}

// Begin resets an earlier completion.
func (e *Event) Begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now.over = false
}

// Finish completes the event at a time on the device's clock.
func (e *Event) Finish(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settle(outcome{over: true, at: at})
}

// Fail marks the event as failed, because the run cannot reach the recording.
func (e *Event) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settle(outcome{over: true, err: err})
}

// settle sets the outcome. The caller holds e.mu.
func (e *Event) settle(o outcome) {
	e.now = o
	if e.over != nil {
		e.over.outcome = o
		close(e.over.done)
		e.over = nil
	}
}

// Await blocks until the event is complete, and returns the time of completion on the device's clock.
func (e *Event) Await() (at time.Duration, err error) { return e.await(nil) }

// await is like Await, but returns os.ErrDeadlineExceeded when expired delivers a value.
func (e *Event) await(expired <-chan time.Time) (at time.Duration, err error) {
	e.mu.Lock()
	result := e.now
	wait := e.over
	if !result.over && wait == nil {
		wait = &settled{done: make(chan struct{})}
		e.over = wait
	}
	e.mu.Unlock()
	if !result.over {
		select {
		case <-wait.done:
			result = wait.outcome
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
	if result.err != nil {
		return 0, fmt.Errorf("%w: the event was not recorded, because the device program that records it failed: %v",
			device.ErrDevice, result.err)
	}
	return result.at, nil
}

// Done implements device.Event.
func (e *Event) Done() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.over && !e.closed
}

// WaitHost implements device.Event.
func (e *Event) WaitHost(limit time.Duration) error {
	if err := e.use(); err != nil {
		return err
	}
	over := e.now.over
	e.mu.Unlock()
	var expired <-chan time.Time
	if !over {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	_, err := e.await(expired)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: event: not complete after %v: %w", e.dev.Name, limit, err)
	case err != nil:
		return fmt.Errorf("%s: event: %w", e.dev.Name, err)
	}
	return nil
}

// Reset implements device.Event.
func (e *Event) Reset() error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.now.over = false
	return nil
}

// Complete implements device.Event.
func (e *Event) Complete() error { return e.CompleteAt(0) }

// CompleteAt implements device.ClockedEvent.
func (e *Event) CompleteAt(at time.Duration) error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.settle(outcome{over: true, at: at})
	return nil
}

// CompletedAt implements device.ClockedEvent.
func (e *Event) CompletedAt() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.at
}

// Close implements device.Event.
func (e *Event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("%s: event closed twice", e.dev.Name)
	}
	e.closed = true
	return nil
}
