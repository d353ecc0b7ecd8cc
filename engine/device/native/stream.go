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
	holds holds // the one call that may be under way
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
	return &stream{dev: d, ptr: (*C.ht_stream)(r.value)}, nil
}

// begin makes this call the only one on the stream.
func (s *stream) begin(what string) error {
	if err := s.holds.acquireAlone("stream"); err != nil {
		return fmt.Errorf("%s: %s: %w", s.dev.info.Name, what, err)
	}
	return nil
}

func (s *stream) program(p device.Program) (*program, error) {
	prog, ok := p.(*program)
	if !ok || prog == nil || prog.dev != s.dev {
		return nil, fmt.Errorf("%s: run: got a program of another device (%T)", s.dev.info.Name, p)
	}
	if !prog.holds.acquire() {
		return nil, fmt.Errorf("%s: run: program is closed", s.dev.info.Name)
	}
	return prog, nil
}

func (s *stream) Run(p device.Program) error {
	if err := s.begin("run"); err != nil {
		return err
	}
	defer s.holds.release()
	prog, err := s.program(p)
	if err != nil {
		return err
	}
	defer prog.holds.release()
	r := C.ht_do_stream_run(s.dev.api, s.ptr, prog.ptr)
	return check(r, s.dev.info.Name)
}

func (s *stream) RunTimed(p device.Program, elapsed []time.Duration) error {
	if err := s.begin("run timed"); err != nil {
		return err
	}
	defer s.holds.release()
	prog, err := s.program(p)
	if err != nil {
		return err
	}
	defer prog.holds.release()
	if len(elapsed) != prog.steps {
		return fmt.Errorf("%s: run timed: elapsed: got %d entries, want one for each of the %d steps", s.dev.info.Name, len(elapsed), prog.steps)
	}
	// A time.Duration is an int64 of nanoseconds.
	r := C.ht_do_stream_run_timed(s.dev.api, s.ptr, prog.ptr, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(elapsed))))
	return check(r, s.dev.info.Name)
}

func (s *stream) Copy(dst, src device.Region) error {
	if err := s.begin("copy"); err != nil {
		return err
	}
	defer s.holds.release()
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
		return fmt.Errorf("%s: copy: dst: got %d bytes, want at least the %d of src", s.dev.info.Name, dst.Bytes, src.Bytes)
	}
	r := C.ht_do_stream_copy(s.dev.api, s.ptr, dp, sp, C.int64_t(src.Bytes))
	return check(r, s.dev.info.Name)
}

func (s *stream) Record(e device.Event) error {
	if err := s.begin("record"); err != nil {
		return err
	}
	defer s.holds.release()
	ev, err := s.dev.event(e)
	if err != nil {
		return fmt.Errorf("%s: record: %w", s.dev.info.Name, err)
	}
	defer ev.holds.release()
	return check(C.ht_do_stream_record(s.dev.api, s.ptr, ev.ptr), s.dev.info.Name)
}

func (s *stream) Wait(e device.Event) error {
	if err := s.begin("wait"); err != nil {
		return err
	}
	defer s.holds.release()
	ev, err := s.dev.event(e)
	if err != nil {
		return fmt.Errorf("%s: wait: %w", s.dev.info.Name, err)
	}
	defer ev.holds.release()
	return check(C.ht_do_stream_wait(s.dev.api, s.ptr, ev.ptr), s.dev.info.Name)
}

func (s *stream) Sync() error {
	if err := s.begin("sync"); err != nil {
		return err
	}
	defer s.holds.release()
	return check(C.ht_do_stream_sync(s.dev.api, s.ptr), s.dev.info.Name)
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
	holds holds // programs that record or wait for it, waits under way
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

// event checks that e belongs to this device, and holds it.
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

// Done implements device.Event; a closed event is not complete.
func (e *event) Done() bool {
	if !e.holds.acquire() {
		return false
	}
	defer e.holds.release()
	return C.ht_do_event_done(e.dev.api, e.ptr) != 0
}

func (e *event) WaitHost(limit time.Duration) error {
	if !e.holds.acquire() {
		return fmt.Errorf("%s: event is closed", e.dev.info.Name)
	}
	defer e.holds.release()
	return check(C.ht_do_event_wait(e.dev.api, e.ptr, C.int64_t(max(limit, 0))), e.dev.info.Name)
}

func (e *event) Close() error {
	if err := e.holds.close(e.dev.info.Name+": close an event", "programs or calls"); err != nil {
		return err
	}
	C.ht_do_event_free(e.dev.api, e.ptr)
	e.dev.holds.release()
	return nil
}
