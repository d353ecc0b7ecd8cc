package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// The shim simulates times, so the measured peaks have no meaning. The test checks which peaks each GPU can measure.
func TestPeaksAreMeasured(t *testing.T) {
	lib := loadShim(t)
	measure := func(what device.Peak) error {
		t.Helper()
		dev, err := lib.Open(0, device.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		v, err := dev.(device.PeakMeasurer).MeasurePeak(what, time.Millisecond)
		if err == nil && !(v > 0) {
			t.Errorf("peak %d: got %v, want more than 0", what, v)
		}
		return err
	}
	for _, what := range []device.Peak{device.PeakF32, device.PeakBF16, device.PeakF16, device.PeakRead,
		device.PeakCopy, device.PeakWrite} {
		if err := measure(what); err != nil {
			t.Errorf("peak %d: %v", what, err)
		}
	}
	if err := measure(99); err == nil {
		t.Error("measured peak 99, which is none")
	}
	t.Setenv("HETERO_SHIM_ARCH", "75")
	if err := measure(device.PeakBF16); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("bf16 on a GPU without such tensor cores: got %v, want ErrUnsupported", err)
	}
	if err := measure(device.PeakF16); err != nil {
		t.Errorf("f16 there: %v", err)
	}
}
