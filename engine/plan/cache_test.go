package plan

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// counting is a device that counts its calls of Compile, and closed kernels. If fail is set, Compile fails after
// failAfter calls.
type counting struct {
	device.Device
	asked, closed, failAfter int
	fail                     error
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
	if err := d.fail; err != nil && d.asked > d.failAfter {
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
		t.Errorf("asked %d times for %d kernels of %d nodes; want once a kernel, and fewer kernels than nodes",
			dev.asked, cache.Len(), len(g.Nodes))
	}
	held := cache.Len()
	if err := errors.Join(cache.Close(), cache.Close()); err != nil {
		t.Error(err)
	}
	if dev.closed != held || cache.Len() != 0 {
		t.Errorf("closed %d kernels of %d, %d are left", dev.closed, held, cache.Len())
	}
}

func TestKernelsGoWithTheLastPlanThatUsesThem(t *testing.T) {
	dev := &counting{Device: reference.New()}
	cache := NewCache(dev)
	compile := func(samples int, fixed *Params) *Plan {
		t.Helper()
		p, err := Compile(cache, classifierGraph(t, small, samples, 8, tensor.F32, true), fixed)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := compile(2, nil)
	one := cache.Len()
	like := compile(2, first.Params()) // has some of its kernels in common with the first plan
	two := cache.Len()
	other := compile(3, first.Params())
	three := cache.Len()
	if two >= 2*one || three <= two {
		t.Fatalf("one plan has %d kernels, with one like it they are %d, with another %d", one, two, three)
	}
	for _, c := range []struct {
		what string
		free *Plan
		want int
	}{{"a plan of another size", other, two}, {"the same once more", other, two}, {"one like another", like, one}} {
		if err := c.free.Free(); err != nil || cache.Len() != c.want {
			t.Errorf("%s: %v, %d kernels are left, want %d", c.what, err, cache.Len(), c.want)
		}
	}
	compiled := dev.asked
	if compile(2, first.Params()); cache.Len() != two || dev.asked-compiled != two-one {
		t.Errorf("a plan like one that was freed: compiled %d kernels, want the %d that were", dev.asked-compiled,
			two-one)
	}
	held := cache.Len()
	l := first.forward[0] // another user than a plan also requests a kernel of the first plan
	if _, err := cache.Compile(l.op, specsOf(l.in), specsOf(l.out)); err != nil {
		t.Fatal(err)
	}
	if err := first.Free(); err != nil || cache.Len() >= held {
		t.Errorf("%v, %d kernels are left, want fewer than %d", err, cache.Len(), held)
	}
	compiled = dev.asked
	if _, err := cache.Compile(l.op, specsOf(l.in), specsOf(l.out)); err != nil || dev.asked != compiled {
		t.Errorf("%v, a plan freed a kernel of another owner", err)
	}
	if err := cache.Close(); err != nil || dev.closed != dev.asked {
		t.Errorf("%v, closed %d of %d kernels", err, dev.closed, dev.asked)
	}
}

func TestAPlanThatFailsLeavesNoKernels(t *testing.T) {
	dev := &counting{Device: reference.New()}
	cache := NewCache(dev)
	first, err := Compile(cache, classifierGraph(t, small, 2, 8, tensor.F32, true), nil)
	if err != nil {
		t.Fatal(err)
	}
	held := cache.Len()
	dev.failAfter, dev.fail = dev.asked+5, errors.New("no more")
	if _, err := Compile(cache, classifierGraph(t, small, 3, 8, tensor.F32, true), first.Params()); !errors.Is(err,
		dev.fail) {
		t.Fatalf("got %v, want %v", err, dev.fail)
	}
	if cache.Len() != held || dev.closed == 0 {
		t.Errorf("%d kernels are left, %d closed; want the %d of the plan before", cache.Len(), dev.closed, held)
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
			if got := k.Out()[0]; r.out.Layout != device.Any && got.Layout != r.out.Layout ||
				!got.Shape.Equal(r.out.Shape) {
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
		asked int // calls of the device's Compile for three requests
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
			if err := cache.Close(); err != nil { // the cache must hold no kernel
				t.Error(err)
			}
		})
	}
}
