package null

import (
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
)

// Kind is the device kind in configurations and flags.
const Kind = "null"

// Model is the speed and memory of a device. A speed of 0 means the speed of Typical.
type Model struct {
	FLOPS              float64 // arithmetic, FLOP/s
	BytesPerSecond     float64 // bandwidth of device memory, bytes/s
	CopyBytesPerSecond float64 // bandwidth of copies between host and device, bytes/s
	LaunchSeconds      float64 // minimum time of a launch or a copy; 0: none
	MemoryBytes        int64   // limit of Alloc and AllocHost together, bytes
	RealTime           float64 // seconds of sleep per modelled second; 0: never sleep
}

// Typical is an average GPU.
var Typical = Model{FLOPS: 10e12, BytesPerSecond: 400e9, CopyBytesPerSecond: 12e9, LaunchSeconds: 5e-6,
	MemoryBytes: 16 << 30}

// Driver opens null devices. With the zero value, they have the model Typical.
type Driver struct{ Model Model }

// Kind implements device.Driver.
func (Driver) Kind() string { return Kind }

// Open implements device.Driver. Every index from 0 on is valid, and each call opens another device.
func (d Driver) Open(index int, _ device.Options) (device.Device, error) {
	if index < 0 {
		return nil, fmt.Errorf("null: index: got %d, want at least 0", index)
	}
	m := d.Model
	if m == (Model{}) {
		m = Typical
	}
	dev, err := New(m)
	if err != nil {
		return nil, err
	}
	dev.Name = fmt.Sprintf("%s:%d", Kind, index)
	return dev, nil
}

// Device is a null device.
type Device struct {
	bookkeeping.Device

	mu    sync.Mutex
	model Model
	now   time.Duration
}

// New opens a null device.
func New(m Model) (*Device, error) {
	d := &Device{Device: bookkeeping.Device{Name: Kind}}
	if err := d.SetModel(m); err != nil {
		return nil, err
	}
	d.LimitBytes = d.Model().MemoryBytes
	return d, nil
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	m := d.Model()
	return device.Info{Name: d.Name, Kind: Kind, ISA: "none", Modelled: true, MemoryBytes: d.LimitBytes,
		Model: fmt.Sprintf("time model of %.3g FLOP/s, %.3g B/s", m.FLOPS, m.BytesPerSecond)}
}

// Model returns the current speed.
func (d *Device) Model() Model {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model
}

// SetModel changes the speed of later work, as when a device throttles. The memory limit does not change.
func (d *Device) SetModel(m Model) error {
	for _, f := range []struct {
		name  string
		value *float64
		usual float64
	}{
		{"FLOPS", &m.FLOPS, Typical.FLOPS},
		{"BytesPerSecond", &m.BytesPerSecond, Typical.BytesPerSecond},
		{"CopyBytesPerSecond", &m.CopyBytesPerSecond, Typical.CopyBytesPerSecond},
		{"LaunchSeconds", &m.LaunchSeconds, 0},
		{"RealTime", &m.RealTime, 0},
	} {
		if *f.value == 0 {
			*f.value = f.usual
		}
		if !(*f.value >= 0) {
			return fmt.Errorf("null device: performance model: %s: got %g, want at least 0", f.name, *f.value)
		}
	}
	if m.MemoryBytes == 0 {
		m.MemoryBytes = Typical.MemoryBytes
	}
	if m.MemoryBytes < 0 {
		return fmt.Errorf("null device: performance model: MemoryBytes: got %d, want at least 0", m.MemoryBytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model = m
	return nil
}

// Now returns the latest time that any stream of the device has reached. Time 0 is the opening of the device.
func (d *Device) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// reached advances the device's clock to t.
func (d *Device) reached(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = max(d.now, t)
}

// launchTime returns the modelled time of a kernel.
func (m Model) launchTime(k *bookkeeping.Kernel) time.Duration {
	in, out := k.In(), k.Out()
	arithmetic := float64(device.FLOPs(k.Op, in, out)) / m.FLOPS
	traffic := float64(device.MovedBytes(in, out)) / m.BytesPerSecond
	return seconds(m.LaunchSeconds + max(arithmetic, traffic))
}

// copyTime returns the modelled time of a copy.
func (m Model) copyTime(bytes int64) time.Duration {
	return seconds(m.LaunchSeconds + float64(bytes)/m.CopyBytesPerSecond)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
