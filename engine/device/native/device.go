//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Device is a device of a native library.
type Device struct {
	api    *C.ht_api
	ptr    *C.ht_device
	index  int
	info   device.Info
	slowed atomic.Pointer[device.Info] // the device's info while it is slowed down, else nil
	// counts buffers, kernels, programs, streams and events of the device, and calls in progress
	holds   holds
	compile sync.Mutex
	slowing sync.Mutex // serialises SetSlowdown, so that Info matches the library

	programs sync.Map // open programs: *C.ht_program to *program
}

var (
	_ device.Device       = (*Device)(nil)
	_ device.LayoutNamer  = (*Device)(nil)
	_ device.PeakMeasurer = (*Device)(nil)
	_ device.Slowable     = (*Device)(nil)
	_ device.Noting       = (*Device)(nil)

	_ device.ActivityNoter   = (*Device)(nil)
	_ device.AddressedDevice = (*Device)(nil)
	_ device.AddressedBuffer = (*buffer)(nil)
)

// Open opens the index-th device of the library's kind.
func (l *Library) Open(index int, opts device.Options) (device.Device, error) {
	name := fmt.Sprintf("%s:%d", l.Kind(), index)
	if index < 0 || index > math.MaxInt32 || opts.Threads < 0 || opts.Threads > math.MaxInt32 {
		return nil, fmt.Errorf("%s: open: got index %d and %d threads, want neither negative", name, index,
			opts.Threads)
	}
	r := C.ht_do_open(l.api, C.int32_t(index), C.int32_t(opts.Threads))
	if err := check(r, name); err != nil {
		return nil, err
	}
	d := &Device{api: l.api, ptr: (*C.ht_device)(r.value), index: index}
	var info C.ht_info
	C.ht_do_info(l.api, d.ptr, &info)
	d.info = l.info(name, &info)
	var identity C.ht_identity
	C.ht_do_identity(l.api, d.ptr, &identity)
	d.info.UUID, d.info.BusID, d.info.FreeBytes = C.GoString(&identity.uuid[0]), C.GoString(&identity.bus_id[0]),
		int64(identity.free_bytes)
	return d, nil
}

func (l *Library) info(name string, info *C.ht_info) device.Info {
	return device.Info{
		Name: name, Kind: l.Kind(), Model: C.GoString(&info.model[0]), ISA: C.GoString(&info.isa[0]),
		Threads: int(info.threads), MemoryBytes: int64(info.memory_bytes), FastBF16: info.fast_bf16 != 0,
		Behind: C.ht_has_marks(l.api) != 0,
	}
}

// Describe returns the Info of the index-th device without opening the device. The Info does not contain UUID, BusID
// and FreeBytes. Describe returns the same errors as Open, or device.ErrUnsupported if the library cannot describe
// devices.
func (l *Library) Describe(index int) (device.Info, error) {
	name := fmt.Sprintf("%s:%d", l.Kind(), index)
	if index < 0 || index > math.MaxInt32 {
		return device.Info{}, fmt.Errorf("%s: describe: got index %d, want at least 0", name, index)
	}
	var info C.ht_info
	if err := check(C.ht_do_describe(l.api, C.int32_t(index), &info), name); err != nil {
		return device.Info{}, err
	}
	return l.info(name, &info), nil
}

// Count returns the number of devices of the library's kind that this process sees. If there is none, it returns
// device.ErrUnavailable.
func (l *Library) Count() (int, error) {
	var n C.int32_t
	r := C.ht_do_count(l.api, &n)
	return int(n), check(r, l.Kind())
}

// hold keeps the device open until holds.release is called.
func (d *Device) hold() error {
	if !d.holds.acquire() {
		return fmt.Errorf("%s: device is closed", d.info.Name)
	}
	return nil
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	if slowed := d.slowed.Load(); slowed != nil {
		return *slowed
	}
	return d.info
}

// SetSlowdown implements device.Slowable.
func (d *Device) SetSlowdown(factor float64) error {
	if err := d.hold(); err != nil {
		return err
	}
	defer d.holds.release()
	d.slowing.Lock()
	defer d.slowing.Unlock()
	if err := check(C.ht_do_set_slowdown(d.api, d.ptr, C.double(factor)), d.info.Name); err != nil {
		return err
	}
	if factor == 1 {
		d.slowed.Store(nil)
		return nil
	}
	slowed := d.info
	slowed.Model += fmt.Sprintf(", simulated slowdown x%.3g", factor)
	d.slowed.Store(&slowed)
	return nil
}

// Slowdown implements device.Slowable. A closed device returns the zero value.
func (d *Device) Slowdown() device.Slowdown {
	if d.hold() != nil {
		return device.Slowdown{Factor: 1}
	}
	defer d.holds.release()
	s := C.ht_do_slowdown(d.api, d.ptr)
	return device.Slowdown{Factor: float64(s.factor), Worked: time.Duration(s.worked_ns),
		Idle: time.Duration(s.idle_ns)}
}

// Memory implements device.Device. A closed device returns 0, 0.
func (d *Device) Memory() (allocated, peak int64) {
	if d.hold() != nil {
		return 0, 0
	}
	defer d.holds.release()
	m := C.ht_do_memory(d.api, d.ptr)
	return int64(m.allocated), int64(m.peak)
}

// Notes implements device.Noting.
func (d *Device) Notes() string {
	if d.hold() != nil {
		return ""
	}
	defer d.holds.release()
	var text [1024]C.char
	C.ht_do_notes(d.api, d.ptr, &text[0], C.size_t(len(text)))
	return C.GoString(&text[0])
}

// LayoutName implements device.LayoutNamer.
func (d *Device) LayoutName(l device.Layout) string {
	if d.hold() != nil {
		return fmt.Sprintf("layout %d", l)
	}
	defer d.holds.release()
	var name [128]C.char
	C.ht_do_layout_name(d.api, d.ptr, C.uint32_t(l), &name[0], C.size_t(len(name)))
	return C.GoString(&name[0])
}

// MeasurePeak implements device.PeakMeasurer.
func (d *Device) MeasurePeak(what device.Peak, limit time.Duration) (perSecond float64, err error) {
	if err := d.hold(); err != nil {
		return 0, err
	}
	defer d.holds.release()
	var v C.double
	r := C.ht_do_measure_peak(d.api, d.ptr, C.int32_t(what), C.double(limit.Seconds()), &v)
	return float64(v), check(r, d.info.Name)
}

// Close implements device.Device.
func (d *Device) Close() error {
	if err := d.holds.close(d.info.Name, "buffers, kernels, programs, streams, events or calls"); err != nil {
		return err
	}
	C.ht_do_close(d.api, d.ptr)
	return nil
}

// Index implements device.AddressedDevice.
func (d *Device) Index() int { return d.index }

// buffer is device or page-locked host memory.
type buffer struct {
	dev   *Device
	ptr   unsafe.Pointer
	bytes int64
	host  bool
	holds holds // counts programs bound to the buffer, and copies in progress
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Buffer, error) { return d.alloc(bytes, false) }

// AllocHost implements device.Device.
func (d *Device) AllocHost(bytes int64) (device.Buffer, error) { return d.alloc(bytes, true) }

func (d *Device) alloc(bytes int64, host bool) (device.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("%s: alloc: got %d bytes, want at least 0", d.info.Name, bytes)
	}
	if err := d.hold(); err != nil {
		return nil, err
	}
	r := C.ht_do_alloc(d.api, d.ptr, C.int64_t(bytes), flag(host))
	if err := check(r, d.info.Name+": alloc"); err != nil {
		d.holds.release()
		return nil, err
	}
	return &buffer{dev: d, ptr: r.value, bytes: bytes, host: host}, nil
}

func (b *buffer) Bytes() int64 { return b.bytes }

func (b *buffer) Host() []byte {
	if b.holds.closed() || !(b.host || b.dev.info.Kind == "cpu") {
		return nil
	}
	return unsafe.Slice((*byte)(b.ptr), b.bytes)
}

// Address implements device.AddressedBuffer.
func (b *buffer) Address() unsafe.Pointer {
	if b.host || b.holds.closed() {
		return nil
	}
	return b.ptr
}

func (b *buffer) Free() error {
	if err := b.holds.close(fmt.Sprintf("%s: free a buffer of %d bytes", b.dev.info.Name, b.bytes),
		"programs or copies"); err != nil {
		return err
	}
	C.ht_do_free(b.dev.api, b.dev.ptr, b.ptr, C.int64_t(b.bytes), flag(b.host))
	b.dev.holds.release()
	return nil
}

// at returns the address of a region of this device, and holds the region's buffer.
func (d *Device) at(r device.Region) (*buffer, unsafe.Pointer, error) {
	if r.Buffer == nil {
		return nil, nil, r.Check()
	}
	b, ok := r.Buffer.(*buffer)
	if !ok || b == nil || b.dev != d {
		return nil, nil, fmt.Errorf("got a buffer of another device (%T), want one of %s", r.Buffer, d.info.Name)
	}
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	if !b.holds.acquire() {
		return nil, nil, fmt.Errorf("got a freed buffer of %d bytes", b.bytes)
	}
	return b, unsafe.Add(b.ptr, r.Offset), nil
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
