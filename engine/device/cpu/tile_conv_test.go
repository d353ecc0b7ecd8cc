package cpu

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// tileConvs are convolutions that the kernels for AMX support. Their channels are multiples of 32, and they have at
// least 16 rows.
var tileConvs = []smallConv{
	// every pixel is a row, so there are 20 rows
	{1, 32, 4, 5, 64, [2]int{1, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, false},
	{3, 64, 13, 7, 32, [2]int{1, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, true},  // the last tile is not full
	{16, 32, 3, 3, 32, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, true},  // one tile of samples
	{20, 32, 5, 4, 96, [2]int{3, 3}, [2]int{2, 2}, [2]int{1, 1}, [2]int{1, 1}, false}, // two tiles that overlap
	// dilated; one sample beyond a pair of tiles
	{33, 96, 4, 4, 32, [2]int{3, 3}, [2]int{1, 1}, [2]int{2, 2}, [2]int{2, 2}, false},
	{40, 64, 4, 3, 64, [2]int{2, 3}, [2]int{3, 1}, [2]int{1, 0}, [2]int{1, 1}, true}, // some rows are in no window
	// no tap reads some of the pixels
	{64, 64, 2, 2, 160, [2]int{1, 1}, [2]int{2, 2}, [2]int{0, 0}, [2]int{1, 1}, false},
	// eight of nine taps read only padding
	{50, 32, 1, 1, 64, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, true},
	// some windows contain only padding
	{16, 64, 2, 2, 32, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false},
	// the pixels are divided into bands, and the sum into parts
	{16, 32, 18, 16, 32, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false},
	{70, 32, 16, 12, 32, [2]int{3, 3}, [2]int{2, 2}, [2]int{1, 1}, [2]int{1, 1}, false}, // two chunks of samples
	{70, 96, 10, 10, 32, [2]int{1, 1}, [2]int{2, 2}, [2]int{0, 0}, [2]int{1, 1}, false}, // two strips of samples
	// the weights exceed the second-level cache
	{32, 512, 1, 1, 512, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false},
}

func TestTileConvolutions(t *testing.T) {
	t.Setenv("HETERO_CPU_KERNELS", "tiles")
	dev := open(t, device.Options{Threads: 3})
	defer dev.Close()
	for _, s := range tileConvs {
		t.Run(s.String(), func(t *testing.T) { s.check(t, dev, tensor.BF16) })
	}
}

// A kernel for AMX reads weights in tiles of 16 pairs. No other kernel of this device has this layout.
func TestOnACPUWithAMXConvolutionsUseTiles(t *testing.T) {
	if flags, err := os.ReadFile("/proc/cpuinfo"); err != nil || !strings.Contains(string(flags), " amx_bf16") {
		needtest.Missing(t, "amx", "/proc/cpuinfo does not list amx_bf16")
	}
	t.Setenv("HETERO_CPU_KERNELS", "tiles")
	dev := open(t, device.Options{Threads: 2})
	defer dev.Close()
	in := []device.TensorSpec{device.Spec(tensor.BF16, 64, 64, 4, 4).With(device.Any),
		device.Spec(tensor.BF16, 64, 64, 3, 3).With(device.Any)}
	op := device.Conv2D{
		Groups: 1, Window: device.Window{Stride: [2]int{1, 1}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}}
	weights := func() string {
		k, err := dev.Compile(op, in, []device.TensorSpec{device.Spec(tensor.BF16, 64, 64, 4, 4).With(device.Any)})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		return dev.(device.LayoutNamer).LayoutName(k.In()[1].Layout)
	}
	if got := weights(); !strings.Contains(got, "16b16a2b") {
		t.Errorf("weights with AMX: got layout %s, want 16b16a2b", got)
	}
	t.Setenv("HETERO_CPU_ISA", "avx512_bf16")
	if got := weights(); strings.Contains(got, "16b16a2b") {
		t.Errorf("weights without AMX: got layout %s, want another one", got)
	}
}

// The threads may divide the sums of a weight gradient, but the division must always be the same.
func TestWeightGradientsHaveEqualBitsEachTime(t *testing.T) {
	t.Setenv("HETERO_CPU_KERNELS", "tiles")
	dev := open(t, device.Options{Threads: 3})
	defer dev.Close()
	s := tileConvs[9]
	image := devicetest.Random(tensor.BF16, tensor.Shape{s.n, s.c, s.h, s.w}, 1, devicetest.Uniform(-1, 1))
	diff := devicetest.Random(tensor.BF16, tensor.Shape{s.n, s.o, s.h, s.w}, 2, devicetest.Uniform(-1, 1))
	op := device.Conv2DDiffWeights{Conv2D: s.op(), Kernel: s.kernel}
	first := run(t, dev, op, []devicetest.Tensor{image, diff})
	for range 5 {
		if again := run(t, dev, op, []devicetest.Tensor{image, diff}); !slices.Equal(again.Values, first.Values) {
			t.Fatal("the same gradient again has other bits")
		}
	}
}
