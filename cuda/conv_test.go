package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const fakeCudnn = "libcudnn_fake.so.9"

func TestMissingCudnnIsTold(t *testing.T) {
	lib := freshShim(t, fakeCublasLt)
	if err := os.Rename(filepath.Join(filepath.Dir(lib.Path()), fakeCudnn),
		filepath.Join(t.TempDir(), fakeCudnn)); err != nil {
		t.Fatal(err)
	}
	if _, err := lib.Open(0, device.Options{}); !errors.Is(err, device.ErrUnavailable) ||
		!strings.Contains(err.Error(), "no cuDNN ("+fakeCudnn+")") ||
		!strings.Contains(err.Error(), "pip install nvidia-cudnn-cu13") {
		t.Errorf("without cuDNN: got %v, want ErrUnavailable, what is missing and what to do", err)
	}
	copyFile(t, fakeCudnn, filepath.Dir(lib.Path()))
	t.Setenv("HETERO_SHIM_CUDNN", "version8")
	if _, err := lib.Open(0, device.Options{}); !errors.Is(err, device.ErrUnavailable) ||
		!strings.Contains(err.Error(), fakeCudnn+": got version 8, want 9") {
		t.Errorf("with cuDNN 8: got %v, want both versions", err)
	}
	t.Setenv("HETERO_SHIM_CUDNN", "")
	open(t, lib)
}

var unitWindow = device.Window{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}

// ones returns a tensor of ones.
func ones(dt tensor.DType, shape ...int) devicetest.Tensor {
	x := devicetest.Tensor{Spec: device.Spec(dt, shape...)}
	x.Values = make([]float64, x.Spec.Shape.Elements())
	for i := range x.Values {
		x.Values[i] = 1
	}
	return x
}

// computed returns the outputs of an op on ones.
func computed(t *testing.T, dev device.Device, op device.Op, dt tensor.DType,
	in ...devicetest.Tensor) []devicetest.Tensor {
	t.Helper()
	r := devicetest.NewRunner(t, dev)
	defer r.Close()
	r.Float = dt
	var operands []devicetest.Operand
	for _, x := range in {
		operands = append(operands, r.Upload(x))
	}
	var out []devicetest.Tensor
	for _, o := range r.Do(op, operands...) {
		out = append(out, r.Download(o))
	}
	return out
}

func wantAll(t *testing.T, what string, got devicetest.Tensor, want float64) {
	t.Helper()
	for i, v := range got.Values {
		if v != want {
			t.Errorf("%s: element %d: got %v, want %v", what, i, v, want)
			return
		}
	}
}

// The weight gradients of bf16 operands are f32. No engine of cuDNN may round them to bf16, where 257 becomes 256. The
// forward result, 257 and a bias of 0.5, must be rounded once, to 258. If it is rounded before the bias is added, too,
// it becomes 256.
func TestResultsAreRoundedOnceInEveryWay(t *testing.T) {
	diff := device.Conv2DDiffWeights{Conv2D: device.Conv2D{Window: unitWindow, Groups: 1}, Kernel: [2]int{1, 1},
		Bias: true}
	for _, c := range []struct{ told, narrow, way string }{
		{"", "", "bf16-f32 chained engine 3"},
		{"single", "", "f32-f32 engine 3"}, // TF32 represents every bf16 number exactly
		{"", "1", "bf16-bf16 engine 3"},
	} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv("HETERO_SHIM_CUDNN", c.told)
		t.Setenv("HETERO_CUDA_NARROW_GRADIENTS", c.narrow)
		dev := open(t, freshShim(t, fakeCublasLt))
		out := computed(t, dev, diff, tensor.BF16, ones(tensor.BF16, 257, 8, 1, 1), ones(tensor.BF16, 257, 8, 1, 1))
		want := 257.0
		if c.narrow != "" {
			want = 256
		}
		wantAll(t, c.way, out[0], want)
		wantAll(t, c.way+": bias", out[1], 257)
		if text, err := os.ReadFile(choices(t)); err != nil || !strings.Contains(string(text), c.way) {
			t.Errorf("told %q: got %q, %v, want %q", c.told, text, err, c.way)
		}

		bias := ones(tensor.F32, 8)
		for i := range bias.Values {
			bias.Values[i] = 0.5
		}
		y := computed(t, dev, device.Conv2D{Window: unitWindow, Groups: 1}, tensor.BF16,
			ones(tensor.BF16, 1, 257, 2, 2), ones(tensor.BF16, 8, 257, 1, 1), bias)
		wantAll(t, c.way+": forward", y[0], 258)
	}
}

// If no engine accepts the number of channels, the device pads the channels with zeros. The zeros must not affect
// results.
func TestChannelsArePaddedWhereEnginesNeedIt(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HETERO_SHIM_CUDNN", "aligned")
	dev := open(t, freshShim(t, fakeCublasLt))
	conv := device.Conv2D{Window: unitWindow, Groups: 1}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		x, w, y := ones(dt, 2, 3, 4, 4), ones(dt, 5, 3, 3, 3), ones(dt, 2, 5, 2, 2)
		wantAll(t, dt.String()+" forward", computed(t, dev, conv, dt, x, w)[0], 27)
		wantAll(t, dt.String()+" diff_weights",
			computed(t, dev, device.Conv2DDiffWeights{Conv2D: conv, Kernel: [2]int{3, 3}}, dt, x, y)[0], 8)
		one := computed(t, dev, device.Conv2DDiffSrc{Conv2D: conv, Height: 1, Width: 1}, dt, ones(dt, 2, 5, 1, 1),
			ones(dt, 5, 3, 1, 1))
		wantAll(t, dt.String()+" diff_src", one[0], 5)
	}
	if _, err := compiled(dev, device.Conv2D{Window: unitWindow, Groups: 3}, device.Spec(tensor.F32, 2, 3, 4, 4),
		device.Spec(tensor.F32, 3, 1, 3, 3)); !errors.Is(err, device.ErrUnsupported) ||
		!strings.Contains(err.Error(), "channels are not aligned") {
		t.Errorf("groups, which cannot be padded: got %v, want ErrUnsupported with cuDNN's reason", err)
	}
}

func TestConvolutionsThatCannotBeComputedAreTold(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dev := open(t, freshShim(t, fakeCublasLt))
	conv := device.Conv2D{Window: unitWindow, Groups: 1}
	x, w := device.Spec(tensor.F32, 2, 4, 4, 4), device.Spec(tensor.F32, 8, 4, 3, 3)
	for _, c := range []struct{ told, want string }{
		{"no-engines", "cuDNN 92000 has no engine for conv2d forward plain f32(2, 4, 4, 4) f32(8, 4, 3, 3)"},
		{"fail", "CUDNN_STATUS_EXECUTION_FAILED: as the test wants it"},
	} {
		t.Setenv("HETERO_SHIM_CUDNN", c.told)
		if _, err := compiled(dev, conv, x, w); !errors.Is(err, device.ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ErrUnsupported with %q", c.told, err, c.want)
		}
	}
	t.Setenv("HETERO_SHIM_CUDNN", "")
	k, err := compiled(dev, conv, x, w)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	text, err := os.ReadFile(choices(t))
	if err != nil || !strings.Contains(string(text), "\tf32-f32 engine 4 knobs\t") {
		t.Errorf("got the choice %q, %v, want engine 4: 0 takes nothing, 1 to 3 are wrong for f32, 5 is slow", text,
			err)
	}
	t.Setenv("HETERO_SHIM_CUDNN", "fail")
	if _, err := runLinear(t, dev, k, 0); !errors.Is(err, device.ErrDevice) ||
		!strings.Contains(err.Error(), "cuDNN convolution: CUDNN_STATUS_EXECUTION_FAILED") {
		t.Errorf("got %v, want a failure of the device that names the convolution", err)
	}
}
