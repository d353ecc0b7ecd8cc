package reference

import (
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// stream runs everything in the calling goroutine.
type stream struct {
	dev    *Device
	closed bool
}

func (s *stream) use() error {
	if s.closed {
		return fmt.Errorf("reference: stream is closed")
	}
	return s.dev.use()
}

func (s *stream) Run(p device.Program) error { return s.run(p, nil) }

func (s *stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	if prog, ok := p.(*program); ok && len(elapsed) != len(prog.steps) {
		return fmt.Errorf("reference: run timed: elapsed: got %d entries, want one for each of the %d steps", len(elapsed), len(prog.steps))
	}
	return s.run(p, elapsed)
}

func (s *stream) run(p device.Program, elapsed []time.Duration) error {
	if err := s.use(); err != nil {
		return err
	}
	prog, ok := p.(*program)
	if !ok || prog.dev != s.dev {
		return fmt.Errorf("reference: run: got a program of another device (%T), want one of %s", p, s.dev.name)
	}
	if prog.closed {
		return fmt.Errorf("reference: run: program is closed")
	}
	for _, st := range prog.steps {
		if st.record != nil {
			st.record.begin()
		}
	}
	for i, st := range prog.steps {
		start := time.Now()
		if err := st.run(); err != nil {
			return fmt.Errorf("reference: run: step %d: %w", i, err)
		}
		if elapsed != nil {
			elapsed[i] += time.Since(start)
		}
	}
	return nil
}

func (s *stream) Copy(dst, src device.Region) error {
	if err := s.use(); err != nil {
		return err
	}
	if _, err := s.dev.resolve(dst); err != nil {
		return fmt.Errorf("reference: copy: dst: %w", err)
	}
	if _, err := s.dev.resolve(src); err != nil {
		return fmt.Errorf("reference: copy: src: %w", err)
	}
	if dst.Bytes < src.Bytes {
		return fmt.Errorf("reference: copy: dst: got %d bytes, want at least the %d of src", dst.Bytes, src.Bytes)
	}
	copy(dst.Host(), src.Host())
	return nil
}

func (s *stream) Record(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.event(e)
	if err != nil {
		return fmt.Errorf("reference: record: %w", err)
	}
	ev.finish()
	return nil
}

func (s *stream) Wait(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.event(e)
	if err != nil {
		return fmt.Errorf("reference: wait: %w", err)
	}
	<-ev.completion()
	return nil
}

func (s *stream) Sync() error { return s.use() }

func (s *stream) Close() error {
	if s.closed {
		return fmt.Errorf("reference: stream closed twice")
	}
	s.closed = true
	return nil
}

// event is complete while its channel is closed.
type event struct {
	dev *Device

	mu       sync.Mutex
	complete chan struct{}
	closed   bool
}

// event checks that e belongs to this device.
func (d *Device) event(e device.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok || ev == nil || ev.dev != d {
		return nil, fmt.Errorf("got an event of another device (%T), want one of %s", e, d.name)
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.closed {
		return nil, fmt.Errorf("got a closed event")
	}
	return ev, nil
}

// begin takes back the completion of an earlier recording.
func (e *event) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isComplete() {
		e.complete = make(chan struct{})
	}
}

func (e *event) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isComplete() {
		close(e.complete)
	}
}

// isComplete wants e.mu held.
func (e *event) isComplete() bool {
	select {
	case <-e.complete:
		return true
	default:
		return false
	}
}

func (e *event) completion() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.complete
}

func (e *event) Done() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isComplete()
}

func (e *event) WaitHost(limit time.Duration) error {
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
		return fmt.Errorf("reference: event: not complete after %v", limit)
	}
}

func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("reference: event closed twice")
	}
	e.closed = true
	return nil
}
