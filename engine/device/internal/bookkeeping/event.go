package bookkeeping

import (
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Event is complete while its channel is closed.
type Event struct {
	dev *Device

	mu       sync.Mutex
	complete chan struct{}
	at       time.Duration // on the clock of the device, where it has one
	closed   bool
}

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	return &Event{dev: d, complete: make(chan struct{})}, nil
}

// Event checks that e is this device's.
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

// Begin takes back the completion of an earlier recording.
func (e *Event) Begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isComplete() {
		e.complete = make(chan struct{})
	}
}

// Finish completes the event at a time on the device's clock.
func (e *Event) Finish(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = at
	if !e.isComplete() {
		close(e.complete)
	}
}

// Await blocks until the event is complete and says when, on the device's clock, it was.
func (e *Event) Await() time.Duration {
	<-e.completion()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// isComplete wants e.mu held.
func (e *Event) isComplete() bool {
	select {
	case <-e.complete:
		return true
	default:
		return false
	}
}

func (e *Event) completion() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.complete
}

// Done implements device.Event.
func (e *Event) Done() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isComplete()
}

// WaitHost implements device.Event.
func (e *Event) WaitHost(limit time.Duration) error {
	done := e.completion()
	select {
	case <-done:
		return nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s: event: not complete after %v", e.dev.Name, limit)
	}
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
