package dry

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
)

func TestMemoryIsCountedAndNotThere(t *testing.T) {
	d := New(reference.New(), 1<<40) // more memory than the machine has
	a, err := d.Alloc(1 << 39)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(1<<39 + 1); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("got %v, want out of memory", err)
	}
	if now, peak := d.Memory(); now != 1<<39 || peak != 1<<39 || a.Host() != nil {
		t.Errorf("got %d bytes, %d at most, host %v", now, peak, a.Host() != nil)
	}
	if d.Close() == nil {
		t.Error("closed with memory given out: no error")
	}
	if err := a.Free(); err != nil {
		t.Error(err)
	}
	if a.Free() == nil {
		t.Error("a second free: no error")
	}
	if now, peak := d.Memory(); now != 0 || peak != 1<<39 {
		t.Errorf("got %d bytes, %d at most", now, peak)
	}
	h, err := d.AllocHost(100)
	if err != nil || len(h.Host()) != 100 {
		t.Errorf("got %d bytes of host memory, %v; want 100", len(h.Host()), err)
	}
	if err := errors.Join(h.Free(), d.Close()); err != nil {
		t.Error(err)
	}
	if got := New(reference.New(), 0).Info().MemoryBytes; got != reference.New().Info().MemoryBytes {
		t.Errorf("got %d bytes, want those of the real device", got)
	}
}

func TestKernelsAreTheRealOnes(t *testing.T) {
	real := reference.New()
	d := New(real, 0)
	op := device.Unary{Func: device.Neg}
	in := []device.TensorSpec{device.Spec(1, 4)}
	want, wantErr := real.Compile(op, in, in)
	got, err := d.Compile(op, in, in)
	if (err == nil) != (wantErr == nil) || err == nil && got.Workspace() != want.Workspace() {
		t.Errorf("got %v, %v; want %v, %v", got, err, want, wantErr)
	}
}
