//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// stream implements device.Stream.
type stream struct {
	dev   *Device
	ptr   *C.ht_stream
	holds holds // counts calls in progress: at most one
}

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.hold(); err != nil {
		return nil, err
	}
	r := C.ht_do_stream_create(d.api, d.ptr)
	if err := check(r, d.info.Name+": stream"); err != nil {
		d.holds.release()
		return nil, err
	}
	ptr := (*C.ht_stream)(r.value)
	if d.info.Behind {
		return &markingStream{stream: stream{dev: d, ptr: ptr}}, nil
	}
	return &stream{dev: d, ptr: ptr}, nil
}

// alone runs call, or returns an error if another call on the stream is in progress.
func (s *stream) alone(what string, call func() error) error {
	if err := s.holds.acquireAlone("stream"); err != nil {
		return fmt.Errorf("%s: %s: %w", s.dev.info.Name, what, err)
	}
	defer s.holds.release()
	return call()
}

// with is like alone, for a call that uses a program.
func (s *stream) with(p device.Program, what string, call func(*program) error) error {
	return s.alone(what, func() error {
		prog, ok := p.(*program)
		if !ok || prog == nil || prog.dev != s.dev {
			return fmt.Errorf("%s: %s: got a program of another device (%T)", s.dev.info.Name, what, p)
		}
		if !prog.holds.acquire() {
			return fmt.Errorf("%s: %s: program is closed", s.dev.info.Name, what)
		}
		defer prog.holds.release()
		return call(prog)
	})
}

func (s *stream) Run(p device.Program) error {
	return s.with(p, "run", func(prog *program) error {
		return check(C.ht_do_stream_run(s.dev.api, s.ptr, prog.ptr), s.dev.info.Name)
	})
}

func (s *stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	return s.with(p, "run timed", func(prog *program) error {
		if len(elapsed) != len(prog.steps) {
			return fmt.Errorf("%s: run timed: elapsed: got %d entries, want one for each of the %d steps",
				s.dev.info.Name, len(elapsed), len(prog.steps))
		}
		// A time.Duration is an int64 with nanoseconds, so C can write to elapsed directly.
		r := C.ht_do_stream_run_timed(s.dev.api, s.ptr, prog.ptr,
			(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(elapsed))))
		return check(r, s.dev.info.Name)
	})
}

// Waited implements device.WaitingStream.
func (s *stream) Waited() (waited time.Duration, known bool) {
	s.alone("waited", func() error {
		waited = time.Duration(C.ht_do_stream_waited(s.dev.api, s.ptr))
		return nil
	})
	return max(waited, 0), waited >= 0
}

// markingStream also implements device.MarkingStream.
type markingStream struct {
	stream
	ns C.int64_t
}

func (s *markingStream) Mark(mark int) error {
	return s.alone("mark", func() error {
		return check(C.ht_do_stream_mark(s.dev.api, s.ptr, C.int32_t(mark)), s.dev.info.Name)
	})
}

func (s *markingStream) Between(from, to int) (took time.Duration, err error) {
	err = s.alone("between", func() error {
		return check(C.ht_do_stream_between(s.dev.api, s.ptr, C.int32_t(from), C.int32_t(to), &s.ns), s.dev.info.Name)
	})
	return time.Duration(s.ns), err
}

func (s *stream) Copy(dst, src device.Region) error {
	return s.alone("copy", func() error {
		db, dp, err := s.dev.at(dst)
		if err != nil {
			return fmt.Errorf("%s: copy: dst: %w", s.dev.info.Name, err)
		}
		defer db.holds.release()
		sb, sp, err := s.dev.at(src)
		if err != nil {
			return fmt.Errorf("%s: copy: src: %w", s.dev.info.Name, err)
		}
		defer sb.holds.release()
		if dst.Bytes < src.Bytes {
			return fmt.Errorf("%s: copy: dst: got %d bytes, want at least the %d of src", s.dev.info.Name, dst.Bytes,
				src.Bytes)
		}
		return check(C.ht_do_stream_copy(s.dev.api, s.ptr, dp, sp, C.int64_t(src.Bytes)), s.dev.info.Name)
	})
}

// on is like alone, for a call that uses an event.
func (s *stream) on(e device.Event, what string, call func(*event) error) error {
	return s.alone(what, func() error {
		ev, err := s.dev.event(e)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.dev.info.Name, what, err)
		}
		defer ev.holds.release()
		return call(ev)
	})
}

func (s *stream) Record(e device.Event) error {
	return s.on(e, "record", func(ev *event) error {
		return check(C.ht_do_stream_record(s.dev.api, s.ptr, ev.ptr), s.dev.info.Name)
	})
}

func (s *stream) Wait(e device.Event) error {
	return s.on(e, "wait", func(ev *event) error {
		return check(C.ht_do_stream_wait(s.dev.api, s.ptr, ev.ptr), s.dev.info.Name)
	})
}

func (s *stream) Sync() error {
	return s.alone("sync", func() error {
		return check(C.ht_do_stream_sync(s.dev.api, s.ptr), s.dev.info.Name)
	})
}

func (s *stream) Close() error {
	if err := s.holds.close(s.dev.info.Name+": close a stream", "calls"); err != nil {
		return err
	}
	C.ht_do_stream_free(s.dev.api, s.ptr)
	s.dev.holds.release()
	return nil
}

// event implements device.Event.
type event struct {
	dev   *Device
	ptr   *C.ht_event
	holds holds // counts programs that record the event or wait for it, and calls that are waiting
}

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.hold(); err != nil {
		return nil, err
	}
	r := C.ht_do_event_create(d.api, d.ptr)
	if err := check(r, d.info.Name+": event"); err != nil {
		d.holds.release()
		return nil, err
	}
	return &event{dev: d, ptr: (*C.ht_event)(r.value)}, nil
}

// event returns e as an event of this device, and holds it. It returns an error if e is closed or belongs to another
// device.
func (d *Device) event(e device.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok || ev == nil || ev.dev != d {
		return nil, fmt.Errorf("got an event of another device (%T), want one of %s", e, d.info.Name)
	}
	if !ev.holds.acquire() {
		return nil, fmt.Errorf("event is closed")
	}
	return ev, nil
}

// Done implements device.Event. It returns false for a closed event.
func (e *event) Done() bool {
	if !e.holds.acquire() {
		return false
	}
	defer e.holds.release()
	return C.ht_do_event_done(e.dev.api, e.ptr) != 0
}

// held runs call, and keeps the event open during the call.
func (e *event) held(call func() C.ht_result) error {
	if !e.holds.acquire() {
		return fmt.Errorf("%s: event is closed", e.dev.info.Name)
	}
	defer e.holds.release()
	return check(call(), e.dev.info.Name)
}

func (e *event) WaitHost(limit time.Duration) error {
	return e.held(func() C.ht_result { return C.ht_do_event_wait(e.dev.api, e.ptr, C.int64_t(max(limit, 0))) })
}

func (e *event) Reset() error {
	return e.held(func() C.ht_result { return C.ht_do_event_reset(e.dev.api, e.ptr) })
}

func (e *event) Complete() error {
	return e.held(func() C.ht_result { return C.ht_do_event_complete(e.dev.api, e.ptr) })
}

func (e *event) Close() error {
	if err := e.holds.close(e.dev.info.Name+": close an event", "programs or calls"); err != nil {
		return err
	}
	C.ht_do_event_free(e.dev.api, e.ptr)
	e.dev.holds.release()
	return nil
}
