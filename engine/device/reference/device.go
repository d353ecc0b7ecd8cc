package reference

import (
	"fmt"
	"runtime"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
)

// Kind is the device kind in configurations and flags.
const Kind = "reference"

// Driver opens reference devices. The zero value is ready for use.
type Driver struct {
	// MemoryBytes limits the allocations of one device, including host memory; 0: the machine's memory.
	MemoryBytes int64
}

// Kind implements device.Driver.
func (Driver) Kind() string { return Kind }

// Open implements device.Driver. Every index from 0 on is valid, and each call opens another device.
func (d Driver) Open(index int, _ device.Options) (device.Device, error) {
	if index < 0 {
		return nil, fmt.Errorf("reference: index: got %d, want at least 0", index)
	}
	dev := New()
	dev.Name = fmt.Sprintf("%s:%d", Kind, index)
	if d.MemoryBytes > 0 {
		dev.LimitBytes = d.MemoryBytes
	}
	return dev, nil
}

// Device is the reference device.
type Device struct{ bookkeeping.Device }

// New returns a reference device that may use the machine's memory.
func New() *Device {
	return &Device{bookkeeping.Device{Name: Kind, LimitBytes: bookkeeping.MachineBytes(), Backing: poisoned}}
}

// poisoned returns memory full of NaN patterns.
func poisoned(n int64) []byte {
	mem := bookkeeping.Aligned(n)
	for i := range min(len(mem), 64) {
		mem[i] = 0xff
	}
	for done := 64; done < len(mem); done *= 2 {
		copy(mem[done:], mem[:done])
	}
	return mem
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Name: d.Name, Kind: Kind, Model: "plain Go", ISA: runtime.GOARCH, Threads: 1,
		MemoryBytes: d.LimitBytes}
}
