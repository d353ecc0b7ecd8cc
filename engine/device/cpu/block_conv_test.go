package cpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// smallConv is a convolution that the kernels for small images support. It has whole blocks of 16 channels, and at
// least 8 samples.
type smallConv struct {
	n, c, h, w, o                     int
	kernel, stride, padding, dilation [2]int
	bias                              bool
}

func (s smallConv) op() device.Conv2D {
	return device.Conv2D{Groups: 1, Window: device.Window{Stride: s.stride, Padding: s.padding, Dilation: s.dilation}}
}

func (s smallConv) String() string {
	return fmt.Sprintf("(%d, %d, %d, %d) to %d, kernel %v stride %v padding %v dilation %v bias %v",
		s.n, s.c, s.h, s.w, s.o, s.kernel, s.stride, s.padding, s.dilation, s.bias)
}

var smallConvs = []smallConv{
	// like a linear layer, with odd numbers of blocks and samples
	{13, 48, 1, 1, 80, [2]int{1, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, false},
	// eight of nine taps read only padding
	{24, 64, 1, 1, 16, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, true},
	{9, 48, 2, 2, 48, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, true},
	// no tap reads some of the pixels
	{16, 80, 2, 2, 144, [2]int{1, 1}, [2]int{2, 2}, [2]int{0, 0}, [2]int{1, 1}, false},
	{25, 32, 4, 4, 48, [2]int{3, 3}, [2]int{2, 2}, [2]int{1, 1}, [2]int{1, 1}, false},
	{8, 48, 3, 5, 64, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false},
	{11, 48, 4, 3, 64, [2]int{2, 3}, [2]int{3, 1}, [2]int{1, 0}, [2]int{1, 1}, true}, // some rows are in no window
	{8, 32, 7, 7, 64, [2]int{3, 3}, [2]int{1, 1}, [2]int{2, 2}, [2]int{2, 2}, false}, // dilated
	// several chunks of samples; the last one is smaller
	{30, 64, 14, 14, 64, [2]int{3, 3}, [2]int{2, 2}, [2]int{1, 1}, [2]int{1, 1}, false},
	// some windows contain only padding
	{8, 64, 2, 2, 32, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false},
}

// The shapes of devicetest have no whole blocks of channels, so devicetest does not run these kernels.
func TestSmallConvolutions(t *testing.T) {
	// with more threads, some shapes would have too few blocks of output for these kernels
	dev := open(t, device.Options{Threads: 2})
	defer dev.Close()
	for _, s := range smallConvs {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("%v/%v", s, dt), func(t *testing.T) { s.check(t, dev, dt) })
		}
	}
}

func (s smallConv) check(t *testing.T, dev device.Device, dt tensor.DType) {
	image := devicetest.Random(dt, tensor.Shape{s.n, s.c, s.h, s.w}, 1, devicetest.Uniform(-1, 1))
	weight := devicetest.Random(dt, tensor.Shape{s.o, s.c, s.kernel[0], s.kernel[1]}, 2, devicetest.Uniform(-1, 1))
	bias := devicetest.Random(tensor.F32, tensor.Shape{s.o}, 3, devicetest.Uniform(-1, 1))
	dst, err := s.op().Infer([]device.TensorSpec{image.Spec, weight.Spec})
	if err != nil {
		t.Fatal(err)
	}
	diff := devicetest.Random(dt, dst[0].Shape, 4, devicetest.Uniform(-1, 1))
	forward := []devicetest.Tensor{image, weight}
	if s.bias {
		forward = append(forward, bias)
	}
	for _, c := range []struct {
		op device.Op
		in []devicetest.Tensor
	}{
		{s.op(), forward},
		{device.Conv2DDiffSrc{Conv2D: s.op(), Height: s.h, Width: s.w}, []devicetest.Tensor{diff, weight}},
		{device.Conv2DDiffWeights{Conv2D: s.op(), Kernel: s.kernel}, []devicetest.Tensor{image, diff}},
	} {
		rounded, exact := make([]devicetest.Tensor, len(c.in)), make([]devicetest.Tensor, len(c.in))
		for i, in := range c.in {
			in.Values = reference.Decode(in.Spec.DType, reference.Encode(in.Spec.DType, in.Values))
			rounded[i], exact[i] = in, in
			exact[i].Spec.DType = tensor.F64
		}
		got, want := run(t, dev, c.op, rounded), run(t, reference.New(), c.op, exact)
		// In f32, sums of up to 10,000 products have errors of a few times 2⁻²⁴. Storing a result as bf16 adds an error
		// of up to 2⁻⁹ of the element.
		limit := 4e-6
		if got.Spec.DType == tensor.BF16 {
			limit = 3e-3
		}
		if e := relativeError(got.Values, want.Values); !(e <= limit) {
			t.Errorf("%s: got a relative error of %.2g, want at most %.2g", c.op.Kind(), e, limit)
		}
	}
}

// run runs op in the layouts that the device prefers. It returns the first output.
func run(t *testing.T, dev device.Device, op device.Op, in []devicetest.Tensor) devicetest.Tensor {
	r := devicetest.NewRunner(t, dev)
	defer r.Close()
	r.Policy = devicetest.Free
	operands := make([]devicetest.Operand, len(in))
	for i, x := range in {
		operands[i] = r.Upload(x)
	}
	return r.Download(r.Do(op, operands...)[0])
}

// relativeError returns ‖got - want‖ / ‖want‖.
func relativeError(got, want []float64) float64 {
	var diff, norm float64
	for i := range want {
		diff += (got[i] - want[i]) * (got[i] - want[i])
		norm += want[i] * want[i]
	}
	return math.Sqrt(diff / norm)
}
