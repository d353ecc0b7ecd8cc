package cpu

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// open opens the CPU device.
func open(t *testing.T, opts device.Options) device.Device {
	t.Helper()
	need(t)
	return opened(t, opts)
}

// need skips the test if the library was not built.
func need(t *testing.T) {
	t.Helper()
	nativetest.Need(t, "cpu", libraryName)
}

func opened(t conformance.TB, opts device.Options) device.Device {
	t.Helper()
	dev, err := Driver{}.Open(0, opts)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func TestConformance(t *testing.T) {
	need(t)
	devicetest.Run(conformance.Go(t), opened, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16},
		Threads: true, Lacks: Lacks})
}

// The bounds hold for any current machine. They reveal a wrong unit, and a loop that the compiler has removed.
func TestMeasurePeak(t *testing.T) {
	dev := open(t, device.Options{})
	defer dev.Close()
	m := dev.(device.PeakMeasurer)
	for what, name := range map[device.Peak]string{
		device.PeakF32: "f32", device.PeakBF16: "bf16", device.PeakRead: "read", device.PeakCopy: "copy",
		device.PeakWrite:      "write",
		device.PeakF32Product: "f32 product", device.PeakBF16Product: "bf16 product",
	} {
		v, err := m.MeasurePeak(what, 50*time.Millisecond)
		if (what == device.PeakBF16 || what == device.PeakBF16Product) && !dev.Info().FastBF16 {
			if !errors.Is(err, device.ErrUnsupported) {
				t.Errorf("bf16 without the instruction: got %v, want ErrUnsupported", err)
			}
			continue
		}
		if err != nil || v < 1e8 || v > 1e16 {
			t.Errorf("%s: got %g per second, %v", name, v, err)
		}
		t.Logf("%s: %.4g per second", name, v)
	}
	if _, err := m.MeasurePeak(99, time.Millisecond); err == nil {
		t.Error("an unknown limit: got no error")
	}
}
