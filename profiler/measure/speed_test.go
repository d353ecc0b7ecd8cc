package measure

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestSpeedIsTheMedianOfItsSlices(t *testing.T) {
	dev := reference.New()
	defer checkFreed(t, dev)
	s, err := OpenSpeed(t.Context(), dev, SpeedOptions{DType: tensor.F32, TensorBytes: leastTensor})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Slice(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.products.slices) != 3 || len(s.memory.slices) != 3 {
		t.Errorf("got %d and %d slices, want 3", len(s.products.slices), len(s.memory.slices))
	}
	// A disturbance during a single slice must not change the result.
	s.products.slices, s.memory.slices = []float64{2, 1000, 1}, []float64{3, 3, 0.001}
	c, b := s.Result()
	if want := 2 * float64(s.size) * float64(s.size) * float64(s.size) / 2 / 1e12; float64(c.TFLOPS) != want ||
		c.Size != s.size || c.DType != "f32" {
		t.Errorf("products: got %+v, want %v TFLOP/s", c, want)
	}
	if want := Figure(3 * float64(leastTensor) / 3 / 1e9); b.Copy != want || b.Read.Known() {
		t.Errorf("memory: got %+v, want %v GB/s copied and nothing else", b, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Slice(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSpeedThatCannotBeMeasuredSaysWhy(t *testing.T) {
	modelled, err := null.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer modelled.Close()
	if _, err := OpenSpeed(t.Context(), modelled, SpeedOptions{DType: tensor.F32}); err == nil ||
		!strings.Contains(err.Error(), "computes no values") {
		t.Errorf("a modelled device: got %v", err)
	}
	small, err := reference.Driver{MemoryBytes: 1 << 20}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer checkFreed(t, small)
	if _, err := OpenSpeed(t.Context(), small, SpeedOptions{DType: tensor.F32}); !errors.Is(err,
		device.ErrOutOfMemory) {
		t.Errorf("too little memory: got %v", err)
	}
}

// With a quota of a fifth of a CPU, one second of CPU time must count as five seconds of elapsed time. Waits must not
// count.
func TestAClockOfCPUTimeKnowsTheQuota(t *testing.T) {
	if _, err := platform.ProcessTime(); err != nil {
		needtest.Missing(t, "system", err)
	}
	// The clock with the quota starts first and is read last. It therefore counts at least the CPU time of the other
	// one.
	fifth := newClock(0.2).elapsed()
	whole := newClock(1).elapsed()
	for busy := newClock(1).busy(); busy() < 20*time.Millisecond; { // uses CPU time
	}
	a := whole()
	b := fifth()
	if a < 20*time.Millisecond || b < 5*a-time.Microsecond {
		t.Errorf("got %v of a whole CPU and %v of a fifth, want at least 20ms and five times as much", a, b)
	}
	if wall := newClock(0); wall.cpus != 0 {
		t.Errorf("a device without CPUs: got %+v, want wall time", wall)
	}
}

func TestAFigureThatWasNotMeasuredIsNull(t *testing.T) {
	text, err := json.Marshal(Bandwidth{Copy: 12.5})
	if want := `{"read_gbytes_per_second":null,"write_gbytes_per_second":null,"copy_gbytes_per_second":12.5}`; err !=
		nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	b := Bandwidth{Read: 1}
	if err := json.Unmarshal([]byte(`{"read_gbytes_per_second":0,"copy_gbytes_per_second":null}`), &b); err != nil ||
		b.Read.Known() || b.Copy.Known() {
		t.Errorf("0 of older files, and null: got %+v, %v, want nothing known", b, err)
	}
}
