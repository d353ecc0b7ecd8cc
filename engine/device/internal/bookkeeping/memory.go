package bookkeeping

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// fallbackBytes is used as the size of the machine's memory if that cannot be read.
const fallbackBytes = 8 << 30

// MachineBytes returns the physical memory of this machine.
func MachineBytes() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		if m, _ := platform.Describe(); m.MemoryBytes > 0 { // the error does not matter if MemoryBytes is known
			return m.MemoryBytes
		}
		return fallbackBytes
	}
	defer f.Close() //nolint:errcheck // read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return fallbackBytes
}

// Aligned returns zeroed memory at an address that is a multiple of 64.
func Aligned(bytes int64) []byte {
	const alignment = 64
	raw := make([]byte, bytes+alignment)
	start := int64(-uintptr(unsafe.Pointer(&raw[0])) % alignment)
	return raw[start : start+bytes : start+bytes]
}

// Buffer is device or host memory.
type Buffer struct {
	dev   *Device
	bytes int64
	mem   []byte // nil if the memory has no contents
	host  bool
	freed atomic.Bool
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Buffer, error) { return d.alloc(bytes, false) }

// AllocHost implements device.Device.
func (d *Device) AllocHost(bytes int64) (device.Buffer, error) { return d.alloc(bytes, true) }

func (d *Device) alloc(bytes int64, host bool) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("%s: alloc: got %d bytes, want at least 0", d.Name, bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: alloc: device is closed", d.Name)
	}
	if free := d.LimitBytes - d.allocated - d.host; bytes > free {
		return nil, fmt.Errorf("%s: alloc: %w: got %d bytes, want at most the %d that are free", d.Name,
			device.ErrOutOfMemory, bytes, free)
	}
	b := &Buffer{dev: d, bytes: bytes, host: host}
	switch {
	case host:
		d.host += bytes
		b.mem = Aligned(bytes)
	default:
		d.allocated += bytes
		d.peak = max(d.peak, d.allocated)
		if d.Backing != nil {
			b.mem = d.Backing(bytes)
		}
	}
	return b, nil
}

// Bytes implements device.Buffer.
func (b *Buffer) Bytes() int64 { return b.bytes }

// Host implements device.Buffer.
func (b *Buffer) Host() []byte {
	if b.freed.Load() {
		return nil
	}
	return b.mem
}

// Free implements device.Buffer.
func (b *Buffer) Free() error {
	if !b.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: buffer of %d bytes freed twice", b.dev.Name, b.bytes)
	}
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if b.host {
		b.dev.host -= b.bytes
	} else {
		b.dev.allocated -= b.bytes
	}
	return nil
}

// resolve returns the buffer of a region, or an error if this device cannot use it.
func (d *Device) resolve(r device.Region) (*Buffer, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	b, ok := r.Buffer.(*Buffer)
	switch {
	case !ok || b.dev != d:
		return nil, fmt.Errorf("got a buffer of another device (%T), want one of %s", r.Buffer, d.Name)
	case b.freed.Load():
		return nil, fmt.Errorf("got a freed buffer of %d bytes", b.bytes)
	}
	return b, nil
}

// CheckCopy checks the operands of a copy.
func (d *Device) CheckCopy(dst, src device.Region) error {
	if err := d.Use(); err != nil {
		return err
	}
	if _, err := d.resolve(dst); err != nil {
		return fmt.Errorf("%s: copy: dst: %w", d.Name, err)
	}
	if _, err := d.resolve(src); err != nil {
		return fmt.Errorf("%s: copy: src: %w", d.Name, err)
	}
	if dst.Bytes < src.Bytes {
		return fmt.Errorf("%s: copy: dst: got %d bytes, want at least the %d of src", d.Name, dst.Bytes, src.Bytes)
	}
	return nil
}

// overlap reports whether two regions have common bytes.
func overlap(a, b device.Region) bool {
	return a.Buffer == b.Buffer && a.Bytes > 0 && b.Bytes > 0 && a.Offset < b.Offset+b.Bytes &&
		b.Offset < a.Offset+a.Bytes
}
