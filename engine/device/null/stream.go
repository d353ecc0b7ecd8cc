package null

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
)

// Stream is a clock that work advances.
type Stream struct {
	dev    *Device
	clock  time.Duration // modelled
	slept  time.Duration // of clock, how much has been slept for or passed by waiting
	closed bool
}

// NewStream implements device.Device; the answer is a *Stream. Its clock starts at 0.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	return &Stream{dev: d}, nil
}

// Clock is the modelled time at which all work of the stream is complete.
func (s *Stream) Clock() time.Duration { return s.clock }

// Advance models work that is no launch, for example a collective.
func (s *Stream) Advance(d time.Duration) {
	s.clock += max(d, 0)
	s.settle()
}

// settle sleeps for what the clock has advanced and tells the device.
func (s *Stream) settle() {
	if scale := s.dev.Model().RealTime; scale > 0 && s.clock > s.slept {
		time.Sleep(time.Duration(float64(s.clock-s.slept) * scale))
	}
	s.slept = s.clock
	s.dev.reached(s.clock)
}

// await blocks until an event is complete; the time until then has really passed.
func (s *Stream) await(e *bookkeeping.Event) {
	s.settle()
	s.clock = max(s.clock, e.Await())
	s.slept = s.clock
}

func (s *Stream) use() error {
	if s.closed {
		return fmt.Errorf("%s: stream is closed", s.dev.Name)
	}
	return s.dev.Use()
}

// Run implements device.Stream.
func (s *Stream) Run(p device.Program) error {
	return s.run(p, func(int, time.Duration) {})
}

// RunTimed implements device.Stream.
func (s *Stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	if err := prog.CheckElapsed(elapsed); err != nil {
		return err
	}
	return s.run(p, func(i int, took time.Duration) { elapsed[i] += took })
}

func (s *Stream) run(p device.Program, took func(int, time.Duration)) error {
	if err := s.use(); err != nil {
		return err
	}
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	prog.Begin()
	model := s.dev.Model()
	for i, st := range prog.Steps {
		start := s.clock
		switch {
		case st.Record != nil:
			s.settle()
			st.Record.Finish(s.clock)
		case st.Wait != nil:
			s.await(st.Wait)
		default:
			s.clock += model.launchTime(st.Kernel)
		}
		took(i, s.clock-start)
	}
	s.settle()
	return nil
}

// Copy implements device.Stream.
func (s *Stream) Copy(dst, src device.Region) error {
	if err := s.use(); err != nil {
		return err
	}
	if err := s.dev.CheckCopy(dst, src); err != nil {
		return err
	}
	if to := dst.Host(); to != nil {
		if from := src.Host(); from != nil {
			copy(to, from)
		} else {
			clear(to[:src.Bytes])
		}
	}
	s.clock += s.dev.Model().copyTime(src.Bytes)
	s.settle()
	return nil
}

// Record implements device.Stream.
func (s *Stream) Record(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err != nil {
		return fmt.Errorf("%s: record: %w", s.dev.Name, err)
	}
	ev.Finish(s.clock)
	return nil
}

// Wait implements device.Stream.
func (s *Stream) Wait(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err != nil {
		return fmt.Errorf("%s: wait: %w", s.dev.Name, err)
	}
	s.await(ev)
	return nil
}

// Sync implements device.Stream.
func (s *Stream) Sync() error { return s.use() }

// Close implements device.Stream.
func (s *Stream) Close() error {
	if s.closed {
		return fmt.Errorf("%s: stream closed twice", s.dev.Name)
	}
	s.closed = true
	return nil
}
