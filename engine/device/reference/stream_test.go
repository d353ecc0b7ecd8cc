package reference

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// If a run fails, the events that it has not recorded yet must also fail. Waits for these events then return an error.
func TestFailedRunFailsWhatItWasToRecord(t *testing.T) {
	dev := New()
	stream, err := dev.NewStream()
	must(t, err)
	before, after := newEvent(t, dev), newEvent(t, dev)
	spec := device.Spec(tensor.F32, 4)
	in, err := dev.Alloc(spec.Size())
	must(t, err)
	out, err := dev.Alloc(spec.Size())
	must(t, err)
	kernel, err := dev.Compile(device.Unary{Func: device.Neg}, []device.TensorSpec{spec}, []device.TensorSpec{spec})
	must(t, err)
	launch := &device.Launch{Kernel: kernel, In: []device.Region{device.Whole(in)},
		Out: []device.Region{device.Whole(out)}}
	p, err := dev.NewProgram([]device.Step{{Record: before}, {Launch: launch}, {Record: after}})
	must(t, err)
	must(t, in.Free())

	waited := make(chan error, 1)
	go func() { waited <- after.WaitHost(time.Minute) }()
	if err := stream.Run(p); err == nil {
		t.Fatal("a launch on freed memory: no error")
	}
	if err := before.WaitHost(0); err != nil {
		t.Errorf("what was recorded before the failure: %v", err)
	}
	if err := <-waited; !errors.Is(err, device.ErrDevice) {
		t.Errorf("waiting for what was to be recorded after it: got %v, want %v", err, device.ErrDevice)
	}
	if err := stream.Wait(after); !errors.Is(err, device.ErrDevice) {
		t.Errorf("a stream that waits for it: got %v, want %v", err, device.ErrDevice)
	}
	must(t, after.Reset())
	must(t, after.Complete())
	if err := stream.Wait(after); err != nil {
		t.Errorf("completed again: %v", err)
	}
}

func newEvent(t *testing.T, dev device.Device) device.Event {
	t.Helper()
	e, err := dev.NewEvent()
	must(t, err)
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
