package dry

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Device is a dry device. Its methods are safe for concurrent use.
type Device struct {
	real  device.Device
	limit int64 // largest device memory in bytes

	mu        sync.Mutex
	allocated int64
	peak      int64
}

var _ device.Device = (*Device)(nil)

// New returns a device that compiles like real and allocates at most memoryBytes; 0 means the memory of real. The
// caller closes the device, then real.
func New(real device.Device, memoryBytes int64) *Device {
	if memoryBytes == 0 {
		memoryBytes = real.Info().MemoryBytes
	}
	return &Device{real: real, limit: memoryBytes}
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	info := d.real.Info()
	info.MemoryBytes = d.limit
	return info
}

// Compile implements device.Device.
func (d *Device) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	return d.real.Compile(op, in, out)
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("dry: alloc: got %d bytes, want at least 0", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > d.limit-d.allocated {
		return nil, fmt.Errorf("dry: alloc %d bytes: %w: %d of %d are allocated", bytes, device.ErrOutOfMemory,
			d.allocated, d.limit)
	}
	d.allocated += bytes
	d.peak = max(d.peak, d.allocated)
	return &buffer{dev: d, bytes: bytes}, nil
}

// AllocHost implements device.Device.
func (d *Device) AllocHost(bytes int64) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("dry: alloc host memory: got %d bytes, want at least 0", bytes)
	}
	host, err := reserve(bytes)
	if err != nil {
		return nil, fmt.Errorf("dry: alloc %d bytes of host memory: %w: %w", bytes, device.ErrOutOfMemory, err)
	}
	return &buffer{dev: d, bytes: bytes, host: host}, nil
}

// Memory implements device.Device.
func (d *Device) Memory() (allocated, peak int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allocated, d.peak
}

// NewProgram implements device.Device.
func (*Device) NewProgram([]device.Step) (device.Program, error) { return nothing{}, nil }

// NewStream implements device.Device.
func (*Device) NewStream() (device.Stream, error) { return nothing{}, nil }

// NewEvent implements device.Device.
func (*Device) NewEvent() (device.Event, error) { return nothing{}, nil }

// Close implements device.Device.
func (d *Device) Close() error {
	if allocated, _ := d.Memory(); allocated != 0 {
		return fmt.Errorf("dry: close: %d bytes of memory are not freed", allocated)
	}
	return nil
}

type buffer struct {
	dev   *Device
	bytes int64
	host  []byte // nil for device memory
	freed bool
}

func (b *buffer) Bytes() int64 { return b.bytes }

func (b *buffer) Host() []byte {
	if b.host == nil {
		return nil
	}
	return b.host[:b.bytes:b.bytes]
}

func (b *buffer) Free() error {
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if b.freed {
		return errors.New("dry: free: the buffer is free already")
	}
	if b.freed = true; b.host == nil {
		b.dev.allocated -= b.bytes
		return nil
	}
	host := b.host
	b.host = nil
	return giveBack(host)
}

// nothing is a program, a stream and an event that is always complete.
type nothing struct{}

func (nothing) Run(device.Program) error                       { return nil }
func (nothing) RunTimed(device.Program, []time.Duration) error { return nil }
func (nothing) Copy(_, _ device.Region) error                  { return nil }
func (nothing) Record(device.Event) error                      { return nil }
func (nothing) Wait(device.Event) error                        { return nil }
func (nothing) Sync() error                                    { return nil }
func (nothing) Done() bool                                     { return true }
func (nothing) WaitHost(time.Duration) error                   { return nil }
func (nothing) Reset() error                                   { return nil }
func (nothing) Complete() error                                { return nil }
func (nothing) Close() error                                   { return nil }
