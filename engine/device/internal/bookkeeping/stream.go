package bookkeeping

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Work is the part of a stream that differs between devices: the execution of work, and a clock.
type Work interface {
	// Launch runs or models a checked launch.
	Launch(s Step) error
	// Copy copies src.Bytes bytes; both regions are checked.
	Copy(dst, src device.Region)
	// Now returns the time on the stream's clock at which all submitted work is complete.
	Now() time.Duration
	// Settle blocks until all submitted work is complete.
	Settle()
	// Passed tells the Work that the stream has waited for an event. The event was complete at the given time on the
	// device's clock.
	Passed(at time.Duration)
}

// stream runs all work in the calling goroutine.
type stream struct {
	dev    *Device
	work   Work
	waited time.Duration // time for which steps of programs waited for events
	closed bool
}

// Waited implements device.WaitingStream.
func (s *stream) Waited() (waited time.Duration, known bool) { return s.waited, true }

// NewStreamOf returns a stream that runs on w.
func (d *Device) NewStreamOf(w Work) (device.Stream, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	return &stream{dev: d, work: w}, nil
}

func (s *stream) use() error {
	if s.closed {
		return fmt.Errorf("%s: stream is closed", s.dev.Name)
	}
	return s.dev.Use()
}

// Run implements device.Stream.
func (s *stream) Run(p device.Program) error { return s.run(p, nil) }

// RunTimed implements device.Stream.
func (s *stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	if err := prog.CheckElapsed(elapsed); err != nil {
		return err
	}
	return s.run(p, elapsed)
}

// run adds the time of each step to elapsed, unless elapsed is nil.
func (s *stream) run(p device.Program, elapsed []time.Duration) error {
	if err := s.use(); err != nil {
		return err
	}
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	prog.Begin()
	for i, st := range prog.Steps {
		start := s.work.Now()
		if err := s.step(st); err != nil {
			prog.fail(i, err)
			return fmt.Errorf("%s: run: step %d: %w", s.dev.Name, i, err)
		}
		if elapsed != nil {
			elapsed[i] += s.work.Now() - start
		}
	}
	s.work.Settle()
	return nil
}

func (s *stream) step(st Step) error {
	switch {
	case st.Record != nil:
		s.record(st.Record)
		return nil
	case st.Wait != nil:
		before := time.Now()
		err := s.wait(st.Wait)
		s.waited += time.Since(before)
		return err
	}
	return s.work.Launch(st)
}

func (s *stream) record(e *Event) {
	s.work.Settle()
	e.Finish(s.work.Now())
}

func (s *stream) wait(e *Event) error {
	s.work.Settle()
	at, err := e.Await()
	if err == nil {
		s.work.Passed(at)
	}
	return err
}

// Copy implements device.Stream.
func (s *stream) Copy(dst, src device.Region) error {
	if err := s.use(); err != nil {
		return err
	}
	if err := s.dev.CheckCopy(dst, src); err != nil {
		return err
	}
	s.work.Copy(dst, src)
	s.work.Settle()
	return nil
}

// Record implements device.Stream.
func (s *stream) Record(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err != nil {
		return fmt.Errorf("%s: record: %w", s.dev.Name, err)
	}
	s.record(ev)
	return nil
}

// Wait implements device.Stream.
func (s *stream) Wait(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err == nil {
		err = s.wait(ev)
	}
	if err != nil {
		return fmt.Errorf("%s: wait: %w", s.dev.Name, err)
	}
	return nil
}

// Sync implements device.Stream.
func (s *stream) Sync() error { return s.use() }

// Close implements device.Stream.
func (s *stream) Close() error {
	if s.closed {
		return fmt.Errorf("%s: stream closed twice", s.dev.Name)
	}
	s.closed = true
	return nil
}
