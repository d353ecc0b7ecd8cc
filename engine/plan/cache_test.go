package plan

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// counting counts what it is asked to compile, and fails the first of them.
type counting struct {
	device.Device
	asked, closed int
	fail          error
}

type countedKernel struct {
	device.Kernel
	of *counting
}

func (k countedKernel) Close() error {
	k.of.closed++
	return k.Kernel.Close()
}

func (d *counting) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	d.asked++
	if err := d.fail; err != nil {
		return nil, err
	}
	k, err := d.Device.Compile(op, in, out)
	return countedKernel{k, d}, err
}

func TestKernelsAreCompiledOnce(t *testing.T) {
	dev := &counting{Device: reference.New()}
	cache := NewCache(dev)
	g := classifierGraph(t, small, 2, 8, tensor.F32, true)
	for range 3 {
		if _, err := Compile(cache, g, nil); err != nil {
			t.Fatal(err)
		}
	}
	if dev.asked != cache.Len() || dev.asked >= len(g.Nodes) {
		t.Errorf("asked %d times for %d kernels of %d nodes; want once a kernel, and fewer kernels than nodes", dev.asked, cache.Len(), len(g.Nodes))
	}
	held := cache.Len()
	if err := errors.Join(cache.Close(), cache.Close()); err != nil {
		t.Error(err)
	}
	if dev.closed != held || cache.Len() != 0 {
		t.Errorf("closed %d kernels of %d, %d are left", dev.closed, held, cache.Len())
	}
}

func TestKernelsDifferByOpTypeShapeAndLayout(t *testing.T) {
	dev := &counting{Device: newParticular()}
	cache := NewCache(dev)
	defer cache.Close()
	op := func(f device.UnaryFunc) device.Op { return device.Unary{Func: f} }
	x := device.Spec(tensor.F32, 2, 3)
	requests := []struct {
		op  device.Op
		in  device.TensorSpec
		out device.TensorSpec
	}{
		{op(device.ReLU), x, x},
		{op(device.Tanh), x, x},
		{op(device.ReLU), device.Spec(tensor.F64, 2, 3), device.Spec(tensor.F64, 2, 3)},
		{op(device.ReLU), device.Spec(tensor.F32, 3, 2), device.Spec(tensor.F32, 3, 2)},
		{op(device.ReLU), x.With(reversed), x},
		{op(device.ReLU), x, x.With(reversed)},
		{op(device.ReLU), x, x.With(device.Any)},
		{device.Fill{DType: tensor.F32, Shape: tensor.Shape{2, 3}, Value: 1}, device.TensorSpec{}, x},
		{device.Fill{DType: tensor.F32, Shape: tensor.Shape{2, 3}, Value: 1 + 1e-15}, device.TensorSpec{}, x},
	}
	for round := range 2 {
		for i, r := range requests {
			var in []device.TensorSpec
			if r.in.DType != tensor.Invalid {
				in = append(in, r.in)
			}
			k, err := cache.Compile(r.op, in, []device.TensorSpec{r.out})
			if err != nil {
				t.Fatal(err)
			}
			if got := k.Out()[0]; r.out.Layout != device.Any && got.Layout != r.out.Layout || !got.Shape.Equal(r.out.Shape) {
				t.Errorf("request %d, round %d: got a kernel for %v, want %v", i, round, got, r.out)
			}
		}
		if dev.asked != len(requests) {
			t.Errorf("round %d: asked %d times, want once for each of the %d", round, dev.asked, len(requests))
		}
	}
}

func TestWhatADeviceLacksIsRememberedAndOtherFailuresAreNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		fail  error
		asked int // in three tries
	}{
		{"no such kernel", device.ErrUnsupported, 1},
		{"a failure that may pass", device.ErrDevice, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := &counting{Device: reference.New(), fail: c.fail}
			cache := NewCache(dev)
			x := []device.TensorSpec{device.Spec(tensor.F32, 3)}
			for range 3 {
				if _, err := cache.Compile(device.Unary{}, x, x); !errors.Is(err, c.fail) {
					t.Errorf("got %v, want %v", err, c.fail)
				}
			}
			if dev.asked != c.asked {
				t.Errorf("the device was asked %d times, want %d", dev.asked, c.asked)
			}
			if err := cache.Close(); err != nil { // there is no kernel to free
				t.Error(err)
			}
		})
	}
}
