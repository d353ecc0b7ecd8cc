package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// shimLibrary holds the sources of the CUDA device, compiled for the host (shim/).
const shimLibrary = nativetest.CUDAShim

// TestMain keeps cached choices out of the user's cache folder.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cuda")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// loadShim loads the GPU device compiled for the host.
func loadShim(t *testing.T) *native.Library {
	t.Helper()
	return nativetest.Load(t, "cpu", shimLibrary)
}

// captured is a device that requires every program to become a graph.
type captured struct {
	device.Device
	t conformance.TB
}

func (d captured) Close() error {
	if notes := d.Device.(device.Noting).Notes(); notes != "" {
		d.t.Errorf("the device notes: %s", notes)
	}
	return d.Device.Close()
}

// capturing returns a function that opens devices of the host shim for a conformance suite.
func capturing(lib *native.Library) func(t conformance.TB, opts device.Options) device.Device {
	return func(t conformance.TB, opts device.Options) device.Device {
		t.Helper()
		dev, err := lib.Open(0, opts)
		if err != nil {
			t.Fatal(err)
		}
		return captured{dev, t}
	}
}

// The kernels are those of the GPU. On the host, fibers replace the threads of a GPU.
func TestKernelsConformOnTheHost(t *testing.T) {
	lib := loadShim(t)
	types := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}
	if testing.Short() {
		types = types[:2]
	}
	caps := devicetest.Caps{Types: types, Lacks: cuda.Lacks}
	if !needtest.Large.On() {
		caps.Brief = []tensor.DType{tensor.F16} // kernels of f16 differ from those of bf16 only in their conversions
	}
	devicetest.Run(conformance.Go(t), capturing(lib), caps)
}

func TestOpenSaysWhyThereIsNoDevice(t *testing.T) {
	lib := loadShim(t)
	for _, c := range []struct{ variable, value, want string }{
		{"HETERO_SHIM_DRIVER", "0", "cuda: no driver"},
		{"HETERO_SHIM_DRIVER", "12080", "the driver supports CUDA 12.8, this program was built with CUDA 13.0"},
		{"HETERO_SHIM_GPUS", "0", "cuda: no GPU: the driver shows none"},
		{"HETERO_SHIM_ARCH", "61", "GPU 0 (host shim) has compute capability 6.1, want at least 7.5"},
	} {
		t.Setenv(c.variable, c.value)
		dev, err := lib.Open(0, device.Options{})
		if err == nil {
			dev.Close()
		}
		if !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: got %v, want %q", c.variable, c.value, err, c.want)
		}
		os.Unsetenv(c.variable)
	}
}
