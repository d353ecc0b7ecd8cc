package measure

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// counted is a device that records the ops that it compiles. It may have too little memory, or lack support for one
// precision.
type counted struct {
	device.Device
	sizes []int
	lacks tensor.DType
}

func (c *counted) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if in[0].DType == c.lacks {
		return nil, device.ErrUnsupported
	}
	c.sizes = append(c.sizes, in[0].Shape[0])
	return c.Device.Compile(op, in, out)
}

func checkFreed(t *testing.T, dev device.Device) {
	t.Helper()
	if left, _ := dev.Memory(); left != 0 {
		t.Errorf("%d bytes of device memory were not freed", left)
	}
	if err := dev.Close(); err != nil {
		t.Errorf("close the device: %v", err)
	}
}

func TestProductsGrowWithinTheBudget(t *testing.T) {
	dev := &counted{Device: reference.New(), lacks: tensor.BF16}
	defer checkFreed(t, dev)
	got, err := Products(t.Context(), dev, tensor.F32, 0)
	if err != nil || !(got.TFLOPS > 0) || got.DType != "f32" || got.Size != smallestProduct || len(dev.sizes) != 1 {
		t.Errorf("without a budget: got %+v, sizes %v, %v, want the smallest product alone", got, dev.sizes, err)
	}
	if _, err := Products(t.Context(), dev, tensor.BF16, time.Second); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("a type that the device lacks: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Products(ctx, dev, tensor.F32, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestAModelOfADeviceIsNotMeasured(t *testing.T) {
	dev, err := null.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := Products(t.Context(), dev, tensor.F32, time.Second); err == nil ||
		!strings.Contains(err.Error(), "computes no values") {
		t.Errorf("got %v", err)
	}
}

func TestTooLittleMemoryEndsTheGrowth(t *testing.T) {
	// Three matrices of 64 x 64 and their copies fit into this memory. Those of 128 x 128 do not.
	small, err := reference.Driver{MemoryBytes: 150 << 10}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer checkFreed(t, small)
	got, err := Products(t.Context(), small, tensor.F32, time.Hour)
	if err != nil || got.Size != smallestProduct {
		t.Errorf("got %+v, %v", got, err)
	}
}

// peaks is a device that measures its own limits.
type peaks struct {
	device.Device
	asked map[device.Peak]time.Duration
}

func (p *peaks) MeasurePeak(what device.Peak, limit time.Duration) (float64, error) {
	p.asked[what] = limit
	if what == device.PeakRead {
		return 0, device.ErrUnsupported
	}
	return 40e9 + float64(what)*1e9, nil
}

func TestMemoryAsksTheDevice(t *testing.T) {
	dev := &peaks{reference.New(), map[device.Peak]time.Duration{}}
	defer checkFreed(t, dev)
	got, err := Memory(t.Context(), dev, 3*time.Second)
	want := Bandwidth{Copy: Figure(40 + device.PeakCopy), Write: Figure(40 + device.PeakWrite)}
	if err != nil || got != want || dev.asked[device.PeakCopy] != time.Second {
		t.Errorf("got %+v, %v, asked %v, want %+v", got, err, dev.asked, want)
	}
}

func TestCopiesWithinAndToADevice(t *testing.T) {
	needtest.NotShort(t, "adds large tensors in Go, which takes ten seconds under the race detector")
	dev := reference.New()
	defer checkFreed(t, dev)
	b, err := Memory(t.Context(), dev, 0)
	if err != nil || !(b.Copy > 0) || b.Read != 0 {
		t.Errorf("got %+v, %v", b, err)
	}
	c, err := HostDevice(t.Context(), dev, 0)
	if err != nil || !(c.ToDevice > 0) || !(c.ToHost > 0) || !(c.LatencySeconds > 0) {
		t.Errorf("got %+v, %v", c, err)
	}
	small, err := reference.Driver{MemoryBytes: 1 << 20}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := HostDevice(t.Context(), small, 0); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("too little memory: got %v", err)
	}
	checkFreed(t, small)
}

func TestTriadComputesWhatItCounts(t *testing.T) {
	for _, threads := range []int{1, 3} {
		if got, err := Triad(t.Context(), threads, 0); err != nil || !(got > 0) {
			t.Errorf("%d threads: got %v, %v", threads, got, err)
		}
	}
	a, b, c := make([]float64, 5), []float64{1, 2, 3, 4, 5}, []float64{1, 1, 1, 1, 2}
	triad(a, b, c, 10)
	if a[0] != 11 || a[4] != 25 {
		t.Errorf("got %v", a)
	}
}

func TestDiskLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	const most = 5<<20 + 3
	d, err := Disk(t.Context(), dir, most, time.Hour)
	if err != nil || d.Bytes != most || !(d.WriteMBytes > 0) || !(d.ReadMBytes > 0) {
		t.Errorf("got %+v, %v, want %d bytes", d, err, most)
	}
	if d, err = Disk(t.Context(), dir, 1<<40, 0); err != nil || d.Bytes != diskBlock {
		t.Errorf("without a budget: got %+v, %v, want one block", d, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Disk(ctx, dir, most, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := Disk(t.Context(), dir+"/none", most, time.Hour); err == nil {
		t.Error("a folder that is not there: no error")
	}
}
