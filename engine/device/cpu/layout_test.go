package cpu

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// The state of a parameter has the layout of its gradient. The layout of the gradient must therefore be the same for
// all batch sizes.
func TestWeightGradientLayoutIgnoresTheBatch(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	name := dev.(device.LayoutNamer).LayoutName
	conv := func(c, h, o, k, stride, groups int) (device.Op, func(dt tensor.DType, n int) []device.TensorSpec) {
		op := device.Conv2DDiffWeights{Kernel: [2]int{k, k}, Conv2D: device.Conv2D{Groups: groups,
			Window: device.Window{Stride: [2]int{stride, stride}, Padding: [2]int{k / 2, k / 2},
				Dilation: [2]int{1, 1}}}}
		oh := (h+2*(k/2)-k)/stride + 1
		return op, func(dt tensor.DType, n int) []device.TensorSpec {
			return []device.TensorSpec{device.Spec(dt, n, c, h, h), device.Spec(dt, n, o, oh, oh)}
		}
	}
	linear := func(i, o int) (device.Op, func(dt tensor.DType, n int) []device.TensorSpec) {
		return device.LinearDiffWeights{Bias: true}, func(dt tensor.DType, n int) []device.TensorSpec {
			return []device.TensorSpec{device.Spec(dt, n, i), device.Spec(dt, n, o)}
		}
	}
	type shape = struct {
		op device.Op
		in func(tensor.DType, int) []device.TensorSpec
	}
	var shapes []shape
	add := func(op device.Op, in func(tensor.DType, int) []device.TensorSpec) {
		shapes = append(shapes, shape{op, in})
	}
	add(conv(3, 32, 64, 7, 2, 1))
	add(conv(64, 8, 64, 3, 1, 1))
	add(conv(256, 4, 512, 1, 2, 1))
	add(conv(512, 1, 2048, 1, 1, 1))
	add(conv(32, 8, 64, 3, 1, 2))
	add(conv(48, 8, 48, 3, 1, 48))
	add(conv(7, 13, 11, 3, 2, 1))
	add(linear(768, 768)) // with its own choice, the library would use different layouts for 16 and 32 rows
	add(linear(768, 3072))
	add(linear(2048, 1000))
	add(linear(13, 10))
	for _, s := range shapes {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			var first device.TensorSpec
			for _, n := range []int{32, 1, 2, 3, 16, 100} {
				got := chosen(t, dev, s.op, s.in(dt, n)...).Out()[0]
				if first.Shape == nil {
					first = got
				}
				if !got.Same(first) {
					t.Errorf("%v of %v, batch %d: got %s, want %s as for batch 32", s.op.Kind(), s.in(dt, n), n,
						name(got.Layout), name(first.Layout))
				}
			}
			t.Logf("%v %v %v: %s", s.op.Kind(), dt, first.Shape, name(first.Layout))
		}
	}
}

func TestLayoutNames(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	name := dev.(device.LayoutNamer).LayoutName
	for l, want := range map[device.Layout]string{
		device.Plain: "plain", device.Any: "any", 1 << 31: "layout 2147483648", 4095: "layout 4095",
	} {
		if got := name(l); got != want {
			t.Errorf("layout %d: got %q, want %q", l, got, want)
		}
	}
}

// Every step reorders the parameters to working copies of weights. A working copy must contain the same numbers,
// rounded once, and zeros in its padding. The extents of the shapes are no multiples of the block size.
func TestWorkingCopiesOfWeights(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	conv := device.Conv2D{
		Groups: 1, Window: device.Window{Stride: [2]int{1, 1}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}}
	image, diff := tensor.Shape{4, 37, 9, 9}, tensor.Shape{4, 53, 9, 9}
	pointwise := device.Conv2D{Groups: 1, Window: device.Window{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, c := range []struct {
			name                   string
			weight                 tensor.Shape
			gradient, forward, src device.Op
			in, diff               tensor.Shape
		}{
			{"3x3", tensor.Shape{53, 37, 3, 3}, device.Conv2DDiffWeights{Conv2D: conv, Kernel: [2]int{3, 3}}, conv,
				device.Conv2DDiffSrc{Conv2D: conv, Height: 9, Width: 9}, image, diff},
			{"1x1", tensor.Shape{53, 37, 1, 1}, device.Conv2DDiffWeights{Conv2D: pointwise, Kernel: [2]int{1, 1}},
				pointwise,
				device.Conv2DDiffSrc{Conv2D: pointwise, Height: 9, Width: 9}, image, diff},
			{"narrow linear", tensor.Shape{10, 70}, device.LinearDiffWeights{}, device.Linear{}, device.LinearDiffSrc{},
				tensor.Shape{6, 70}, tensor.Shape{6, 10}},
			{"wide linear", tensor.Shape{200, 70}, device.LinearDiffWeights{}, device.Linear{}, device.LinearDiffSrc{},
				tensor.Shape{6, 70}, tensor.Shape{6, 200}},
		} {
			state := chosen(t, dev, c.gradient, device.Spec(dt, c.in...), device.Spec(dt, c.diff...)).Out()[0]
			for use, k := range map[string]device.Kernel{
				"forward":  chosen(t, dev, c.forward, device.Spec(dt, c.in...), device.Spec(dt, c.weight...)),
				"diff_src": chosen(t, dev, c.src, device.Spec(dt, c.diff...), device.Spec(dt, c.weight...)),
			} {
				t.Run(c.name+"/"+use+"/"+dt.String(), func(t *testing.T) { checkCopy(t, dev, state, k.In()[1]) })
			}
		}
	}
}

// chosen compiles op with the layout Any for all operands, and closes the kernel. The specs of a closed kernel can
// still be read.
func chosen(t *testing.T, dev device.Device, op device.Op, in ...device.TensorSpec) device.Kernel {
	t.Helper()
	out, err := op.Infer(in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		in[i] = in[i].With(device.Any)
	}
	for i := range out {
		out[i] = out[i].With(device.Any)
	}
	k, err := dev.Compile(op, in, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	return k
}

// checkCopy moves numbers from a plain tensor to the layout of the state, from there to the working copy, and back.
func checkCopy(t *testing.T, dev device.Device, state, working device.TensorSpec) {
	name := dev.(device.LayoutNamer).LayoutName
	t.Logf("%s %v to %s %v", name(state.Layout), state.DType, name(working.Layout), working.DType)
	// The values include midpoints between two bf16 numbers, and both ends of the range. They include no subnormal
	// numbers, because CPUs flush these to zero when they convert to bf16.
	x := devicetest.Random(tensor.F32, state.Shape, 7, devicetest.Uniform(-1, 1))
	copy(x.Values, []float64{1.00390625, 1.01171875, -1.00390625, math.Inf(1), math.Inf(-1), math.NaN(),
		math.MaxFloat32, 0x1p-126, 0})
	x.Values = reference.Decode(tensor.F32, reference.Encode(tensor.F32, x.Values))
	r := devicetest.NewRunner(t, dev)
	var kernels []device.Kernel
	defer func() {
		r.Close() // the program of the runner must be closed before the kernels
		for _, k := range kernels {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	from := r.Upload(x)
	var steps []device.Step
	for _, to := range []device.TensorSpec{state, working, device.Spec(working.DType, working.Shape...)} {
		k, err := dev.Compile(device.Reorder{To: to.DType}, []device.TensorSpec{from.Spec}, []device.TensorSpec{to})
		if err != nil {
			t.Fatal(err)
		}
		kernels = append(kernels, k)
		next := devicetest.Operand{Spec: k.Out()[0], Region: r.Alloc(to.Size(), 0xff)}
		l := &device.Launch{Kernel: k, In: []device.Region{from.Region}, Out: []device.Region{next.Region}}
		if k.Workspace() > 0 {
			l.Workspace = r.Alloc(k.Workspace(), 0)
		}
		steps = append(steps, device.Step{Launch: l})
		from = next
	}
	r.RunSteps(steps...)
	got, want := r.Download(from), reference.Decode(working.DType, reference.Encode(working.DType, x.Values))
	for i, w := range want {
		if g := got.Values[i]; g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
			t.Fatalf("element %d: got %g, want %g", i, g, w)
		}
	}
	if g, w := nonzeros(reference.Decode(working.DType, r.Bytes(steps[1].Launch.Out[0]))), nonzeros(want); g != w {
		t.Errorf("the working copy holds %d numbers other than 0, want %d: its padding is not zero", g, w)
	}
}

func nonzeros(values []float64) int {
	n := 0
	for _, v := range values {
		if v != 0 {
			n++
		}
	}
	return n
}
