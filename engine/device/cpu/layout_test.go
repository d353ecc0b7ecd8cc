package cpu

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// A parameter's state lies as its gradient does: whatever the batch, it must be one layout.
func TestWeightGradientLayoutIgnoresTheBatch(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	name := dev.(device.LayoutNamer).LayoutName
	conv := func(c, h, o, k, stride, groups int) (device.Op, func(dt tensor.DType, n int) []device.TensorSpec) {
		op := device.Conv2DDiffWeights{Kernel: [2]int{k, k}, Conv2D: device.Conv2D{Groups: groups,
			Window: device.Window{Stride: [2]int{stride, stride}, Padding: [2]int{k / 2, k / 2}, Dilation: [2]int{1, 1}}}}
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
	add(linear(768, 768)) // 16 and 32 rows differ if left to the library
	add(linear(768, 3072))
	add(linear(2048, 1000))
	add(linear(13, 10))
	for _, s := range shapes {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			var first device.TensorSpec
			for _, n := range []int{32, 1, 2, 3, 16, 100} {
				in := s.in(dt, n)
				out, err := s.op.Infer(in)
				if err != nil {
					t.Fatal(err)
				}
				for i := range in {
					in[i] = in[i].With(device.Any)
				}
				for i := range out {
					out[i] = out[i].With(device.Any)
				}
				k, err := dev.Compile(s.op, in, out)
				if err != nil {
					t.Fatal(err)
				}
				got := k.Out()[0]
				if err := k.Close(); err != nil {
					t.Error(err)
				}
				if first.Shape == nil {
					first = got
				}
				if !got.Same(first) {
					t.Errorf("%v of %v, batch %d: got %s, want %s as for batch 32", s.op.Kind(), in, n, name(got.Layout), name(first.Layout))
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
