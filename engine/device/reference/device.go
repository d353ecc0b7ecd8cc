package reference

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Kind is the device kind, as users write it.
const Kind = "reference"

// Driver opens reference devices. The zero value is ready for use.
type Driver struct {
	// MemoryBytes is what one device gives out at most, host memory included; 0 = the machine's memory.
	MemoryBytes int64
}

// Kind implements device.Driver.
func (Driver) Kind() string { return Kind }

// Open implements device.Driver; any index from 0 on is a device of its own.
func (d Driver) Open(index int, _ device.Options) (device.Device, error) {
	if index < 0 {
		return nil, fmt.Errorf("reference: index: got %d, want at least 0", index)
	}
	dev := New()
	dev.name = fmt.Sprintf("%s:%d", Kind, index)
	if d.MemoryBytes > 0 {
		dev.limit = d.MemoryBytes
	}
	return dev, nil
}

// Device is the reference device.
type Device struct {
	name  string
	limit int64 // bytes of device and host memory together

	mu              sync.Mutex
	allocated, peak int64 // bytes, device memory
	host            int64 // bytes, host memory
	closed          bool
}

// New opens a reference device that may use the machine's memory.
func New() *Device { return &Device{name: Kind, limit: machineBytes()} }

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Name: d.name, Kind: Kind, Model: "plain Go", ISA: runtime.GOARCH, Threads: 1, MemoryBytes: d.limit}
}

// Memory implements device.Device.
func (d *Device) Memory() (allocated, peak int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allocated, d.peak
}

// Close implements device.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("reference: device closed twice")
	}
	if d.allocated > 0 || d.host > 0 {
		return fmt.Errorf("reference: close: %d bytes of device and %d of host memory are not freed", d.allocated, d.host)
	}
	d.closed = true
	return nil
}

// use says whether the device is still open.
func (d *Device) use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("reference: device is closed")
	}
	return nil
}

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	return &stream{dev: d}, nil
}

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	return &event{dev: d, complete: make(chan struct{})}, nil
}
