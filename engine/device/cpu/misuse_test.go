package cpu

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// The device must refuse these calls. It can detect them, because it counts the references to its objects. devicetest
// covers wrong arguments.
func TestClosingInTheWrongOrderIsRefused(t *testing.T) {
	dev := open(t, device.Options{})
	b := newRig(t, dev)
	for _, c := range []struct {
		name string
		call func() error
		says string
	}{
		{"device with open objects", dev.Close, "still held"},
		{"kernel of a program", b.kernel.Close, "still held by 1 launches"},
		{"input of a program", b.src.Free, "still held"},
		{"output of a program", b.dst.Free, "still held"},
		{"event of a program", b.event.Close, "still held"},
	} {
		if err := c.call(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error that says %q", c.name, err, c.says)
		}
	}
	if err := b.stream.Run(b.program); err != nil {
		t.Errorf("afterwards everything still works: %v", err)
	}
	b.close(t)
	if err := dev.Close(); err != nil {
		t.Errorf("the right order: %v", err)
	}
}

func TestUsingWhatIsClosedIsRefused(t *testing.T) {
	dev := open(t, device.Options{})
	b := newRig(t, dev)
	launch := b.launch()
	region := launch.In[0]
	other, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	live, err := dev.Alloc(region.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	b.close(t)
	second := []struct {
		name string
		call func() error
	}{
		{"close a program twice", b.program.Close},
		{"close a kernel twice", b.kernel.Close},
		{"close a stream twice", b.stream.Close},
		{"close an event twice", b.event.Close},
		{"free twice", b.src.Free},
		{"run on a closed stream", func() error { return b.stream.Run(b.program) }},
		{"run a closed program", func() error { return other.Run(b.program) }},
		{"time a closed program", func() error { return other.RunTimed(b.program, make([]time.Duration, 2)) }},
		{"copy from freed memory", func() error { return other.Copy(device.Whole(live), region) }},
		{"copy to freed memory", func() error { return other.Copy(region, device.Whole(live)) }},
		{"record a closed event", func() error { return other.Record(b.event) }},
		{"wait for a closed event", func() error { return other.Wait(b.event) }},
		{"block on a closed event", func() error { return b.event.WaitHost(time.Hour) }},
		{"launch a closed kernel", func() error {
			_, err := dev.NewProgram([]device.Step{{Launch: launch}})
			return err
		}},
	}
	for _, c := range second {
		if err := c.call(); err == nil {
			t.Errorf("%s: got no error", c.name)
		}
	}
	if b.event.Done() {
		t.Error("a closed event is complete")
	}
	if h := b.src.Host(); h != nil {
		t.Errorf("freed memory is still visible: %d bytes", len(h))
	}
	if err := errors.Join(other.Close(), live.Free(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"close a device twice": dev.Close,
		"allocate":             func() error { _, err := dev.Alloc(1); return err },
		"make a stream":        func() error { _, err := dev.NewStream(); return err },
		"make an event":        func() error { _, err := dev.NewEvent(); return err },
		"make a program":       func() error { _, err := dev.NewProgram(nil); return err },
		"compile": func() error {
			_, err := dev.Compile(device.Reorder{To: 1}, b.kernel.In(), b.kernel.In())
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s on a closed device: got no error", name)
		}
	}
}

func TestObjectsOfAnotherDeviceAreRefused(t *testing.T) {
	one, two := open(t, device.Options{}), open(t, device.Options{})
	b := newRig(t, one)
	stream, err := two.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"a launch": func() error { _, err := two.NewProgram([]device.Step{{Launch: b.launch()}}); return err },
		"an event": func() error { _, err := two.NewProgram([]device.Step{{Record: b.event}}); return err },
		"a run":    func() error { return stream.Run(b.program) },
		"a copy":   func() error { return stream.Copy(device.Whole(b.dst), device.Whole(b.dst)) },
		"a record": func() error { return stream.Record(b.event) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "another device") {
			t.Errorf("%s: got %v, want an error that says it is another device's", name, err)
		}
	}
	b.close(t)
	if err := errors.Join(stream.Close(), one.Close(), two.Close()); err != nil {
		t.Error(err)
	}
}

func newStream(t testing.TB, dev device.Device) device.Stream {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newEvent(t *testing.T, dev device.Device) device.Event {
	t.Helper()
	e, err := dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWaitingTooLongTellsSo(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	e := newEvent(t, dev)
	defer e.Close()
	for _, limit := range []time.Duration{-1, 0, 20 * time.Millisecond} {
		start := time.Now()
		if err := e.WaitHost(limit); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("limit %v: got %v, want %v", limit, err, os.ErrDeadlineExceeded)
		}
		if took := time.Since(start); took < limit {
			t.Errorf("limit %v: waited only %v", limit, took)
		}
	}
}

func TestStreamIsForOneGoroutineAtATime(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	s := newStream(t, dev)
	defer s.Close()
	e := newEvent(t, dev)
	defer e.Close()
	done := make(chan error)
	go func() { // as soon as the stream accepts the call, the call blocks the stream
		err := s.Wait(e)
		for err != nil && strings.Contains(err.Error(), "another goroutine") {
			err = s.Wait(e)
		}
		done <- err
	}()
	var err error
	for deadline := time.Now().Add(time.Minute); ; {
		if err = s.Sync(); err != nil || time.Now().After(deadline) {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "another goroutine") {
		t.Errorf("a second call: got %v, want it refused", err)
	}
	if err := s.Close(); err == nil {
		t.Error("closing a stream that waits: got no error")
	}
	other, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := errors.Join(other.Record(e), <-done); err != nil {
		t.Error(err)
	}
}
