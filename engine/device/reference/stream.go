package reference

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// stream runs everything in the calling goroutine.
type stream struct {
	dev    *Device
	closed bool
}

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	return &stream{dev: d}, nil
}

func (s *stream) use() error {
	if s.closed {
		return fmt.Errorf("%s: stream is closed", s.dev.Name)
	}
	return s.dev.Use()
}

func (s *stream) Run(p device.Program) error {
	return s.run(p, func(int, time.Duration) {})
}

func (s *stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	if err := prog.CheckElapsed(elapsed); err != nil {
		return err
	}
	return s.run(p, func(i int, took time.Duration) { elapsed[i] += took })
}

func (s *stream) run(p device.Program, took func(int, time.Duration)) error {
	if err := s.use(); err != nil {
		return err
	}
	prog, err := s.dev.Program(p)
	if err != nil {
		return err
	}
	prog.Begin()
	for i, st := range prog.Steps {
		start := time.Now()
		switch {
		case st.Record != nil:
			st.Record.Finish(0)
		case st.Wait != nil:
			st.Wait.Await()
		default:
			if err := run(st); err != nil {
				return fmt.Errorf("%s: run: step %d: %w", s.dev.Name, i, err)
			}
		}
		took(i, time.Since(start))
	}
	return nil
}

func (s *stream) Copy(dst, src device.Region) error {
	if err := s.use(); err != nil {
		return err
	}
	if err := s.dev.CheckCopy(dst, src); err != nil {
		return err
	}
	copy(dst.Host(), src.Host())
	return nil
}

func (s *stream) Record(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err != nil {
		return fmt.Errorf("%s: record: %w", s.dev.Name, err)
	}
	ev.Finish(0)
	return nil
}

func (s *stream) Wait(e device.Event) error {
	if err := s.use(); err != nil {
		return err
	}
	ev, err := s.dev.Event(e)
	if err != nil {
		return fmt.Errorf("%s: wait: %w", s.dev.Name, err)
	}
	ev.Await()
	return nil
}

func (s *stream) Sync() error { return s.use() }

func (s *stream) Close() error {
	if s.closed {
		return fmt.Errorf("%s: stream closed twice", s.dev.Name)
	}
	s.closed = true
	return nil
}
