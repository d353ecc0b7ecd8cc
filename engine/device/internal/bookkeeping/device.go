package bookkeeping

import (
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Device holds the state that all objects of a device use. The exported fields must be set before the first use.
type Device struct {
	Name       string
	LimitBytes int64 // limit of device and host memory together, bytes
	// Backing allocates the bytes of device memory; nil: device memory has no contents.
	Backing func(bytes int64) []byte
	// Saved returns the size of the state that op saves for the backward pass, in bytes. image is the image that the
	// state belongs to. nil: MaskBytes or ArgmaxBytes per element of the image.
	Saved func(op device.Op, image device.TensorSpec) int64
	// Scratch returns the workspace of op, in bytes; nil: kernels need none.
	Scratch func(op device.Op, in, out []device.TensorSpec) int64

	mu              sync.Mutex
	allocated, peak int64 // device memory, bytes
	host            int64 // host memory, bytes
	closed          bool
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
		return fmt.Errorf("%s: device closed twice", d.Name)
	}
	if d.allocated > 0 || d.host > 0 {
		return fmt.Errorf("%s: close: %d bytes of device and %d of host memory are not freed", d.Name, d.allocated,
			d.host)
	}
	d.closed = true
	return nil
}

// Use returns an error if the device is closed.
func (d *Device) Use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s: device is closed", d.Name)
	}
	return nil
}
