package reference

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

const (
	alignment = 64   // bytes
	poison    = 0xff // fresh memory: NaN in every float type
	// fallbackBytes stands for the machine's memory where it cannot be read.
	fallbackBytes = 8 << 30
)

// machineBytes is the physical memory of this machine.
func machineBytes() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
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

// buffer is device or host memory; the difference is only who may use it.
type buffer struct {
	dev   *Device
	mem   []byte
	host  bool
	freed atomic.Bool
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Buffer, error) { return d.alloc(bytes, false) }

// AllocHost implements device.Device.
func (d *Device) AllocHost(bytes int64) (device.Buffer, error) { return d.alloc(bytes, true) }

func (d *Device) alloc(bytes int64, host bool) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("reference: alloc: got %d bytes, want at least 0", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("reference: alloc: device is closed")
	}
	if free := d.limit - d.allocated - d.host; bytes > free {
		return nil, fmt.Errorf("reference: alloc: %w: got %d bytes, want at most the %d that are free", device.ErrOutOfMemory, bytes, free)
	}
	if host {
		d.host += bytes
	} else {
		d.allocated += bytes
		d.peak = max(d.peak, d.allocated)
	}
	return &buffer{dev: d, mem: alignedBytes(bytes), host: host}, nil
}

// alignedBytes is poisoned memory whose address is a multiple of alignment.
func alignedBytes(n int64) []byte {
	raw := make([]byte, n+alignment)
	start := int64(-uintptr(unsafe.Pointer(&raw[0])) % alignment)
	mem := raw[start : start+n : start+n]
	for i := range mem {
		mem[i] = poison
	}
	return mem
}

func (b *buffer) Bytes() int64 { return int64(len(b.mem)) }

func (b *buffer) Host() []byte {
	if b.freed.Load() {
		return nil
	}
	return b.mem
}

func (b *buffer) Free() error {
	if !b.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("reference: buffer of %d bytes freed twice", len(b.mem))
	}
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if b.host {
		b.dev.host -= b.Bytes()
	} else {
		b.dev.allocated -= b.Bytes()
	}
	return nil
}

// resolve finds the memory of a region, or says why this device cannot use it.
func (d *Device) resolve(r device.Region) (*buffer, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	b, ok := r.Buffer.(*buffer)
	switch {
	case !ok || b.dev != d:
		return nil, fmt.Errorf("got a buffer of another device (%T), want one of %s", r.Buffer, d.name)
	case b.freed.Load():
		return nil, fmt.Errorf("got a freed buffer of %d bytes", b.Bytes())
	}
	return b, nil
}

// overlap says whether two regions share bytes.
func overlap(a, b device.Region) bool {
	return a.Buffer == b.Buffer && a.Bytes > 0 && b.Bytes > 0 && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes
}
