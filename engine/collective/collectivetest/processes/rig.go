package processes

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// rig holds a rank's device, and buffers that operations reuse because page-locked memory is slow to allocate.
type rig struct {
	dev device.Device
	in  device.Stream // stream that copies to the device
	out device.Stream // stream that copies to the host

	mu    sync.Mutex
	spare map[int][]*inFlight // free memory and events, by size class
}

func newRig(dev device.Device) (*rig, error) {
	in, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	out, err := dev.NewStream()
	return &rig{dev: dev, in: in, out: out, spare: map[int][]*inFlight{}}, err
}

// inFlight is an in-flight operation: its memory and events.
type inFlight struct {
	bytes     int64
	gpu, host device.Buffer
	start     *gate        // the operation's After event
	done      device.Event // the operation's Done event
}

// gate is an event that can be made to fail.
type gate struct {
	device.Event
	failed atomic.Pointer[error]
}

func (g *gate) fail(err error) { g.failed.Store(&err) }

// WaitHost implements device.Event. If fail is called during WaitHost, only the next call returns the error.
func (g *gate) WaitHost(limit time.Duration) error {
	if failed := g.failed.Load(); failed != nil {
		return *failed
	}
	return g.Event.WaitHost(limit)
}

// class returns the size class for a buffer of the given bytes. Buffers of class c have 2^c bytes, at least 64.
func class(bytes int64) int { return bits.Len64(uint64(max(bytes, 64) - 1)) }

// prepare returns memory and events for an operation.
func (b *rig) prepare(o operation) (*inFlight, error) {
	c := class(o.Bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.spare[c]); n > 0 {
		f := b.spare[c][n-1]
		b.spare[c] = b.spare[c][:n-1]
		f.bytes = o.Bytes
		f.start.failed.Store(nil)
		return f, errors.Join(f.start.Reset(), f.done.Reset())
	}
	f := &inFlight{bytes: o.Bytes, start: new(gate)}
	var faults [4]error
	f.gpu, faults[0] = b.dev.Alloc(1 << c)
	f.host, faults[1] = b.dev.AllocHost(1 << c)
	f.start.Event, faults[2] = b.dev.NewEvent()
	f.done, faults[3] = b.dev.NewEvent()
	return f, errors.Join(faults[:]...)
}

// giveBack keeps the memory for a later operation.
func (b *rig) giveBack(f *inFlight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := class(f.gpu.Bytes())
	b.spare[c] = append(b.spare[c], f)
}

func (f *inFlight) region() device.Region { return device.Region{Buffer: f.gpu, Bytes: f.bytes} }
func (f *inFlight) copied() device.Region { return device.Region{Buffer: f.host, Bytes: f.bytes} }

// begin copies data to the device and lets the operation start. If cause is not empty, it instead makes the operation
// fail with this cause.
func (f *inFlight) begin(b *rig, data []byte, cause string) {
	if cause != "" {
		f.start.fail(errors.New(cause))
		return
	}
	if int64(len(data)) != f.bytes {
		f.start.fail(errors.New("processes: the content of a buffer has another size than the buffer"))
		return
	}
	var err error
	if f.bytes > 0 {
		copy(f.host.Host(), data)
		err = b.in.Copy(f.region(), f.copied())
	}
	if err == nil {
		err = b.in.Record(f.start.Event)
	}
	if err != nil {
		f.start.fail(err)
	}
}

// result waits until the operation is complete, and returns the content of its buffer.
func (f *inFlight) result(b *rig) ([]byte, error) {
	if err := b.out.Wait(f.done); err != nil {
		return nil, err
	}
	if f.bytes > 0 {
		if err := b.out.Copy(f.copied(), f.region()); err != nil {
			return nil, err
		}
	}
	return f.host.Host()[:f.bytes], b.out.Sync()
}
