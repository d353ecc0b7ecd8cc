package cpu

import (
	"encoding/binary"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rig is a device, and a program that reorders from f32 to bf16.
type rig struct {
	dev      device.Device
	kernel   device.Kernel
	src, dst device.Buffer
	stream   device.Stream
	event    device.Event
	program  device.Program
}

// newRig returns a rig. The caller closes it.
func newRig(t *testing.T, dev device.Device) *rig {
	t.Helper()
	const n = 1000
	b := &rig{dev: dev}
	var err error
	must := func(e error) {
		t.Helper()
		if e != nil {
			t.Fatal(e)
		}
	}
	op := device.Reorder{To: tensor.BF16}
	in := []device.TensorSpec{device.Spec(tensor.F32, n)}
	out, err := op.Infer(in)
	must(err)
	b.kernel, err = dev.Compile(op, in, out)
	must(err)
	b.src, err = dev.Alloc(b.kernel.In()[0].Size())
	must(err)
	b.dst, err = dev.Alloc(b.kernel.Out()[0].Size())
	must(err)
	b.stream, err = dev.NewStream()
	must(err)
	b.event, err = dev.NewEvent()
	must(err)
	b.program, err = dev.NewProgram([]device.Step{{Launch: b.launch()}, {Record: b.event}})
	must(err)
	for i := range n {
		binary.LittleEndian.PutUint32(b.src.Host()[4*i:], math.Float32bits(float32(i)+1))
	}
	return b
}

func (b *rig) launch() *device.Launch {
	return &device.Launch{Name: "reorder", Kernel: b.kernel, In: []device.Region{device.Whole(b.src)},
		Out: []device.Region{device.Whole(b.dst)}}
}

// close closes everything except the device, in the order that the contract requires.
func (b *rig) close(t *testing.T) {
	t.Helper()
	for _, c := range []interface{ Close() error }{b.program, b.kernel, b.stream, b.event} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, buf := range []device.Buffer{b.src, b.dst} {
		if err := buf.Free(); err != nil {
			t.Error(err)
		}
	}
}

// reorderOnce runs the reorder once and checks its result.
func reorderOnce(t *testing.T, dev device.Device) {
	t.Helper()
	b := newRig(t, dev)
	defer b.close(t)
	if err := b.stream.Run(b.program); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint16(b.dst.Host()[2*2:]); got != 0x4040 { // 3.0
		t.Errorf("got %#x, want the bf16 number 3 = 0x4040", got)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dev := open(t, device.Options{})
	defer dev.Close()
	b := newRig(t, dev)
	defer b.close(t)
	part := device.Region{Buffer: b.dst, Offset: 128, Bytes: 64}
	from := device.Region{Buffer: b.src, Offset: 64, Bytes: 64}
	elapsed := make([]time.Duration, 2)
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Run", func() error { return b.stream.Run(b.program) }},
		{"RunTimed", func() error { return b.stream.RunTimed(b.program, elapsed) }},
		{"Copy", func() error { return b.stream.Copy(part, from) }},
		{"Record", func() error { return b.stream.Record(b.event) }},
		{"Wait", func() error { return b.stream.Wait(b.event) }},
		{"Sync", func() error { return b.stream.Sync() }},
		{"Done", func() error { b.event.Done(); return nil }},
		{"WaitHost", func() error { return b.event.WaitHost(time.Second) }},
		{"Reset", b.event.Reset},
		{"Complete", b.event.Complete},
		{"Memory", func() error { dev.Memory(); return nil }},
		{"Slowdown", func() error { dev.(device.Slowable).Slowdown(); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			allocs := testing.AllocsPerRun(100, func() {
				if err := c.call(); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("got %g allocations a call, want 0", allocs)
			}
		})
	}
	if elapsed[0] <= 0 {
		t.Errorf("a timed launch took %v", elapsed[0])
	}
}

func BenchmarkRun(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dev, err := Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		b.Skip(err)
	}
	defer dev.Close()
	s := newStream(b, dev)
	defer s.Close()
	p, err := dev.NewProgram(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(p); err != nil {
			b.Fatal(err)
		}
	}
}
