package null

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestConformance(t *testing.T) {
	open := func(t conformance.TB, opts device.Options) device.Device {
		t.Helper()
		dev, err := Driver{}.Open(0, opts)
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	devicetest.Run(conformance.Go(t), open, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16},
		NoValues: true})
}

// rig holds a test, a null device and one of its streams.
type rig struct {
	*testing.T
	dev    *Device
	stream *Stream
}

func open(t *testing.T, m Model) rig {
	t.Helper()
	dev, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return rig{t, dev, newStream(t, dev)}
}

func newStream(t *testing.T, dev *Device) *Stream {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return s.(*Stream)
}

// alloc allocates memory of the same size on the host and on the device.
func (b rig) alloc(bytes int64) (host, dev device.Buffer) {
	b.Helper()
	host, err := b.dev.AllocHost(bytes)
	b.must(err)
	dev, err = b.dev.Alloc(bytes)
	b.must(err)
	return host, dev
}

// launch returns a step that runs op on new memory.
func (b rig) launch(op device.Op, in ...device.TensorSpec) device.Step {
	b.Helper()
	out, err := op.Infer(in)
	if err != nil {
		b.Fatal(err)
	}
	k, err := b.dev.Compile(op, in, out)
	if err != nil {
		b.Fatal(err)
	}
	region := func(s device.TensorSpec) device.Region {
		buf, err := b.dev.Alloc(s.Size())
		if err != nil {
			b.Fatal(err)
		}
		return device.Whole(buf)
	}
	l := &device.Launch{Kernel: k}
	for _, s := range in {
		l.In = append(l.In, region(s))
	}
	for _, s := range k.Out() {
		l.Out = append(l.Out, region(s))
	}
	return device.Step{Launch: l}
}

func (b rig) program(steps ...device.Step) device.Program {
	b.Helper()
	p, err := b.dev.NewProgram(steps)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b rig) event() device.Event {
	b.Helper()
	e, err := b.dev.NewEvent()
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func (b rig) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// round is a model with round numbers: 1 GFLOP/s, 1 GB/s, copies at 100 MB/s, and 1 ms per launch.
var round = Model{FLOPS: 1e9, BytesPerSecond: 1e9, CopyBytesPerSecond: 1e8, LaunchSeconds: 1e-3, MemoryBytes: 1 << 40}

func TestLaunchTakesTheLongerOfArithmeticAndTraffic(t *testing.T) {
	for _, c := range []struct {
		name string
		op   device.Op
		in   []device.TensorSpec
		want time.Duration
	}{
		// 2·1000·1000·1000 = 2e9 FLOPs take 2 s; the traffic of 12 MB would take only 12 ms
		{"bound by arithmetic", device.Linear{}, []device.TensorSpec{device.Spec(tensor.F32, 1000, 1000),
			device.Spec(tensor.F32, 1000, 1000)}, 2001 * time.Millisecond},
		// reads 4 MB and writes 4 MB
		{"bound by traffic", device.Unary{}, []device.TensorSpec{device.Spec(tensor.F32, 1000, 1000)},
			9 * time.Millisecond},
		// reads 2 MB and writes 2 MB
		{"half as wide, half as long", device.Unary{}, []device.TensorSpec{device.Spec(tensor.BF16, 1000, 1000)},
			5 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, round)
			elapsed := make([]time.Duration, 1)
			b.must(b.stream.RunTimed(b.program(b.launch(c.op, c.in...)), elapsed))
			if elapsed[0] != c.want || b.dev.Now() != c.want {
				t.Errorf("got %v, device clock %v; want %v", elapsed[0], b.dev.Now(), c.want)
			}
		})
	}
}

func TestCopyTakesItsBytes(t *testing.T) {
	b := open(t, round)
	host, dev := b.alloc(1e6)
	b.must(b.stream.Copy(device.Whole(dev), device.Whole(host)))
	if want := 11 * time.Millisecond; b.stream.Clock() != want {
		t.Errorf("got %v, want %v", b.stream.Clock(), want)
	}
}

func TestCopyFromTheDeviceIsZeros(t *testing.T) {
	b := open(t, round)
	host, dev := b.alloc(8)
	copy(host.Host(), "not zero")
	b.must(b.stream.Copy(device.Region{Buffer: host, Bytes: 5}, device.Region{Buffer: dev, Bytes: 5}))
	if want := []byte("\x00\x00\x00\x00\x00ero"); !bytes.Equal(host.Host(), want) {
		t.Errorf("got %q, want %q", host.Host(), want)
	}
}

// advance models work that is no launch, such as a collective operation.
func (s *Stream) advance(d time.Duration) {
	s.clock.now += d
	s.clock.Settle()
}

// A program has two launches of 9 ms. After the first launch, a bucket is ready. A collective of 20 ms then starts on
// another stream. It ends at 29 ms, which is 11 ms after the end of the program.
func TestOverlapComesOutRight(t *testing.T) {
	b := open(t, round)
	ready, reduced := b.event(), b.event()
	launch := b.launch(device.Unary{}, device.Spec(tensor.F32, 1000, 1000))
	b.must(b.stream.Run(b.program(launch, device.Step{Record: ready}, launch)))
	other := newStream(t, b.dev)
	b.must(other.Wait(ready))
	other.advance(20 * time.Millisecond)
	b.must(other.Record(reduced))
	if got, want := b.stream.Clock(), 18*time.Millisecond; got != want {
		t.Errorf("after the program: got %v, want %v", got, want)
	}
	elapsed := make([]time.Duration, 2)
	b.must(b.stream.RunTimed(b.program(device.Step{Wait: reduced}, launch), elapsed))
	if elapsed[0] != 11*time.Millisecond || elapsed[1] != 9*time.Millisecond {
		t.Errorf("waiting and launch: got %v, want [11ms 9ms]", elapsed)
	}
}

func TestThrottledDeviceIsSlower(t *testing.T) {
	b := open(t, round)
	p := b.program(b.launch(device.Unary{}, device.Spec(tensor.F32, 1000, 1000)))
	b.must(b.stream.Run(p))
	slow := round
	slow.BytesPerSecond /= 2
	b.must(b.dev.SetModel(slow))
	elapsed := make([]time.Duration, 1)
	b.must(b.stream.RunTimed(p, elapsed))
	if want := 17 * time.Millisecond; elapsed[0] != want {
		t.Errorf("got %v, want %v", elapsed[0], want)
	}
}

func TestRealTimeSleepsInProportion(t *testing.T) {
	m := round
	m.RealTime = 2
	b := open(t, m)
	ready := b.event()
	launch := b.launch(device.Unary{}, device.Spec(tensor.F32, 1000, 1000))
	p := b.program(launch, device.Step{Record: ready}, launch)
	start := time.Now()
	seen := make(chan time.Duration, 1)
	go func() {
		if err := ready.WaitHost(time.Minute); err != nil {
			t.Error(err)
		}
		seen <- time.Since(start)
	}()
	b.must(b.stream.Run(p))
	took := time.Since(start)
	if took < 36*time.Millisecond {
		t.Errorf("18 ms at a scale of 2 took %v", took)
	}
	if at := <-seen; at < 18*time.Millisecond {
		t.Errorf("the event after 9 ms at a scale of 2 was complete after %v", at)
	}
}

func TestWrongModelIsRefused(t *testing.T) {
	for _, m := range []Model{{FLOPS: -1}, {BytesPerSecond: -1}, {LaunchSeconds: -1}, {RealTime: -1},
		{MemoryBytes: -1}} {
		if _, err := New(m); err == nil {
			t.Errorf("%+v: no error", m)
		}
	}
}

func TestThousandDevicesCostLittle(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	devices := make([]*Device, 1000)
	for i := range devices {
		b := open(t, Typical)
		for range 10 {
			_, err := b.dev.Alloc(1 << 30)
			b.must(err)
		}
		b.must(b.stream.Run(b.program(b.launch(device.Unary{}, device.Spec(tensor.F32, 1<<20)))))
		devices[i] = b.dev
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 16<<20 {
		t.Errorf("1000 devices with 10 GiB each hold %d bytes of this process, want at most 16 MiB", used)
	}
	runtime.KeepAlive(devices)
}

// A modelled all-reduce ends at 50 ms. Work that waits for it must start at 50 ms.
func TestCompletionFromTheHostCarriesItsTime(t *testing.T) {
	b := open(t, round)
	reduced := b.event().(device.ClockedEvent)
	wait := b.program(device.Step{Wait: reduced}, b.launch(device.Unary{}, device.Spec(tensor.F32, 1000, 1000)))
	b.must(reduced.CompleteAt(50 * time.Millisecond))
	b.must(b.stream.Run(wait))
	if got, want := b.stream.Clock(), 59*time.Millisecond; got != want || reduced.CompletedAt() != 50*time.Millisecond {
		t.Errorf("got a clock of %v, want %v; the event completed at %v", got, want, reduced.CompletedAt())
	}
	b.must(reduced.Complete()) // an event without a modelled time does not delay the stream
	b.must(b.stream.Run(wait))
	if got, want := b.stream.Clock(), 68*time.Millisecond; got != want {
		t.Errorf("after a completion outside the model: got %v, want %v", got, want)
	}
}
