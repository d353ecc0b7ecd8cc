package devicetest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// patience is longer than the time that any operation of these tests takes, even on a loaded machine.
var patience = 30 * time.Second

// moment is long enough to expose a fault, and short enough for fast tests.
const moment = 30 * time.Millisecond

// streamCheck checks one rule of the contract on a fresh device.
type streamCheck struct {
	name  string
	check func(conformance.T, *Runner)
}

func runStreams(t conformance.T, open Opener, caps Caps) {
	for _, c := range append(eventChecks, []streamCheck{
		{"copies move exactly their bytes", checkCopies},
		{"a stream completes events", checkStreamRecord},
		{"a program completes events for other goroutines", checkProgramRecord},
		{"a program waits for an event", checkProgramWait},
		{"a stream waits for an event", checkStreamWait},
		{"timed runs add to what was measured", checkTimed},
		{"marks tell the time between moments", checkMarks},
		{"programs say what they consist of", checkDescribed},
		{"an empty program runs", checkEmpty},
		{"a program runs many times and in order", checkOrder},
		{"streams of several goroutines do not disturb each other", checkParallel},
	}...) {
		t.Run(c.name, func(t conformance.T) {
			r := NewRunner(t, opened(t, open, device.Options{}))
			t.Cleanup(r.Close) // runs before the device closes
			r.NoValues = caps.NoValues
			c.check(t, r)
		})
	}
}

func checkCopies(t conformance.T, r *Runner) {
	host := mustAlloc(t, r.dev.AllocHost, 300)
	defer mustFree(t, host)
	back := mustAlloc(t, r.dev.AllocHost, 300)
	defer mustFree(t, back)
	for i := range host.Host() {
		host.Host()[i] = byte(i)
	}
	a, b := r.Alloc(300, 0), r.Alloc(300, 0)
	part := func(b device.Buffer, offset, n int64) device.Region {
		return device.Region{Buffer: b, Offset: offset, Bytes: n}
	}
	for _, c := range []struct{ dst, src device.Region }{
		{part(a.Buffer, 0, 300), part(host, 0, 300)},
		{part(b.Buffer, 13, 101), part(a.Buffer, 7, 101)},
		{part(back, 0, 300), part(b.Buffer, 0, 300)},
		{part(back, 299, 1), part(host, 5, 1)},
		{part(back, 1, 0), part(host, 0, 0)},
	} {
		if err := r.stream.Copy(c.dst, c.src); err != nil {
			t.Fatalf("copy: %v", err)
		}
	}
	must(t, r.stream.Sync())
	want := make([]byte, 300)
	copy(want[13:114], host.Host()[7:])
	want[299] = 5
	if !r.NoValues && !bytes.Equal(back.Host(), want) {
		t.Errorf("got %v, want %v", back.Host(), want)
	}
}

func must(t conformance.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// event returns an event that is closed when the test ends.
func (r *Runner) event(t conformance.T) device.Event {
	t.Helper()
	e, err := r.dev.NewEvent()
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// another returns a stream that is closed when the test ends.
func (r *Runner) another(t conformance.T) device.Stream {
	t.Helper()
	s, err := r.dev.NewStream()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// program returns a program that is closed when the test ends.
func (r *Runner) program(t conformance.T, steps ...device.Step) device.Program {
	t.Helper()
	p, err := r.dev.NewProgram(steps)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func checkStreamRecord(t conformance.T, r *Runner) {
	e := r.event(t)
	for range 3 {
		must(t, r.stream.Record(e))
		must(t, r.stream.Sync())
		must(t, e.WaitHost(patience))
		if !e.Done() {
			t.Error("not done after the stream was synchronised")
		}
	}
}

func checkProgramRecord(t conformance.T, r *Runner) {
	e := r.event(t)
	x := r.Upload(Of(tensor.F32, tensor.Shape{3}, 1, 2, 3))
	negated, launch := r.prepare(device.Unary{Func: device.Neg}, x)
	p := r.program(t, launch, device.Step{Record: e})
	waited := make(chan error, 2)
	for range cap(waited) {
		go func() { waited <- e.WaitHost(patience) }()
	}
	time.Sleep(moment)
	must(t, r.stream.Run(p))
	for range cap(waited) {
		must(t, <-waited)
	}
	must(t, r.stream.Sync())
	r.wantValues(t, negated, -1, -2, -3)
}

// prepare compiles op for plain operands and binds it, without running it.
func (r *Runner) prepare(op device.Op, in ...Operand) (Operand, device.Step) {
	r.t.Helper()
	var specs []device.TensorSpec
	l := &device.Launch{Name: op.Kind()}
	for _, o := range in {
		specs = append(specs, o.Spec)
		l.In = append(l.In, o.Region)
	}
	out, err := op.Infer(specs)
	must(r.t, err)
	k := r.compile(op, specs, out)
	for i, s := range k.In() {
		if !s.Same(specs[i]) {
			r.t.Fatalf("%s: got %v, want plain operands to be taken as they are", op.Kind(), s)
		}
	}
	l.Kernel = k
	o := Operand{Spec: k.Out()[0], Region: r.Alloc(k.Out()[0].Size(), poison)}
	l.Out = []device.Region{o.Region}
	if n := k.Workspace(); n > 0 {
		l.Workspace = r.Alloc(n, poison)
	}
	return o, device.Step{Launch: l}
}

func (r *Runner) wantValues(t conformance.T, o Operand, want ...float64) {
	t.Helper()
	if got := r.Download(o); !r.NoValues && fmt.Sprint(got.Values) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got.Values, want)
	}
}

// wantBlocked calls work with another stream. The work must complete done after the call of release, and not before;
// early is the error in this case.
func (r *Runner) wantBlocked(t conformance.T, done device.Event, early string, work func(device.Stream) error,
	release func() error) {
	t.Helper()
	ran := make(chan error, 1)
	other := r.another(t)
	go func() { ran <- work(other) }()
	if err := done.WaitHost(moment); err == nil {
		t.Error(early)
	}
	must(t, release())
	must(t, done.WaitHost(patience))
	must(t, <-ran)
	must(t, other.Sync())
}

func checkProgramWait(t conformance.T, r *Runner) {
	gate, done := r.event(t), r.event(t)
	x := r.Upload(Of(tensor.F32, tensor.Shape{2}, 4, 9))
	root, launch := r.prepare(device.Unary{Func: device.Sqrt}, x)
	p := r.program(t, device.Step{Wait: gate}, launch, device.Step{Record: done})
	r.wantBlocked(t, done, "the program continued before the event that it waits for was recorded",
		func(s device.Stream) error { return s.Run(p) }, func() error { return r.stream.Record(gate) })
	r.wantValues(t, root, 2, 3)
}

func checkStreamWait(t conformance.T, r *Runner) {
	gate, done := r.event(t), r.event(t)
	r.wantBlocked(t, done, "the stream continued before the event that it waits for was recorded",
		func(s device.Stream) error {
			if err := s.Wait(gate); err != nil {
				return err
			}
			return s.Record(done)
		}, func() error { return r.stream.Record(gate) })
}

func checkTimed(t conformance.T, r *Runner) {
	x := r.Upload(Random(tensor.F32, tensor.Shape{64, 1000}, 1, symmetric))
	_, launch := r.prepare(device.Unary{Func: device.Exp}, x)
	p := r.program(t, launch, device.Step{Record: r.event(t)}, launch)
	before := []time.Duration{time.Hour, 0, 0}
	elapsed := append([]time.Duration(nil), before...)
	for range 2 {
		must(t, r.stream.RunTimed(p, elapsed))
		for i := range elapsed {
			if elapsed[i] < before[i] || elapsed[i]-before[i] > patience {
				t.Errorf("step %d: got %v after %v", i, elapsed[i], before[i])
			}
		}
		if elapsed[0]+elapsed[2] <= before[0]+before[2] {
			t.Errorf("two launches took no time: %v after %v", elapsed, before)
		}
		copy(before, elapsed)
	}
}

// checkMarks requires that asynchronous streams have marks, and that other streams have none.
func checkMarks(t conformance.T, r *Runner) {
	s, ok := r.stream.(device.MarkingStream)
	if behind := r.dev.Info().Behind; ok != behind {
		t.Fatalf("Info.Behind is %v, streams with marks: %v", behind, ok)
	}
	if !ok {
		return
	}
	for _, mark := range []int{-1, device.MaxMarks} {
		if s.Mark(mark) == nil {
			t.Errorf("mark %d: no error, want 0 to %d", mark, device.MaxMarks-1)
		}
	}
	must(t, s.Mark(0))
	if _, err := s.Between(0, 3); err == nil {
		t.Error("the time to a mark that was never set: no error")
	}
	_, step := r.prepare(device.Unary{Func: device.Square}, r.Upload(Of(tensor.F32, tensor.Shape{1}, 1)))
	p := r.program(t, step)
	for range 2 { // the second iteration moves the marks
		must(t, s.Mark(0))
		must(t, s.Run(p))
		must(t, s.Mark(3))
		must(t, s.Sync())
		if took, err := s.Between(0, 3); err != nil || took <= 0 || took > patience {
			t.Errorf("a launch took %v, %v", took, err)
		}
	}
	arrived, gate := r.event(t), r.event(t)
	p = r.program(t, device.Step{Record: arrived}, device.Step{Wait: gate})
	must(t, s.Mark(0))
	must(t, s.Run(p))
	must(t, s.Mark(1))
	must(t, arrived.WaitHost(patience))
	time.Sleep(moment)
	must(t, gate.Complete())
	must(t, s.Sync())
	// The time on the host includes the time before the stream was blocked, so the time on the device may be shorter.
	if took, err := s.Between(0, 1); err != nil || took < moment/10 || took > patience {
		t.Errorf("standing at an event for %v took %v, %v", moment, took, err)
	}
}

// checkDescribed checks the description of a program's steps, if the device provides descriptions.
func checkDescribed(t conformance.T, r *Runner) {
	x := r.Upload(Of(tensor.F32, tensor.Shape{2}, 1, -3))
	_, launch := r.prepare(device.Unary{Func: device.Exp}, x)
	launch.Launch.Name = "layer1.exp"
	e := r.event(t)
	p, ok := r.program(t, launch, device.Step{Record: e}, device.Step{Wait: e}).(device.DescribedProgram)
	if !ok {
		t.Skip("programs of this device do not describe themselves")
	}
	steps := p.Describe()
	if len(steps) != 3 || steps[0].Name != "layer1.exp" || steps[0].Op != (device.Unary{Func: device.Exp}) ||
		steps[0].Waits {
		t.Fatalf("got %+v, want a launch and two steps of events", steps)
	}
	if in, out := steps[0].In, steps[0].Out; len(in) != 1 || len(out) != 1 || in[0].Size() != 8 || out[0].Size() != 8 {
		t.Errorf("launch: got operands %v and %v, want 8 bytes each", in, out)
	}
	if steps[1].Op != nil || steps[1].Waits || steps[2].Op != nil || !steps[2].Waits {
		t.Errorf("got %+v, want an event that is recorded, then waited for", steps[1:])
	}
}

func checkEmpty(t conformance.T, r *Runner) {
	must(t, r.stream.Run(r.program(t)))
	must(t, r.stream.RunTimed(r.program(t), nil))
	must(t, r.stream.Sync())
}

func checkOrder(t conformance.T, r *Runner) {
	x := r.Upload(Of(tensor.F32, tensor.Shape{2}, 1, -3))
	two := r.Upload(Of(tensor.F32, tensor.Shape{1}, 2))
	doubled, first := r.prepare(device.Scale{}, x, two)
	halved, second := r.prepare(device.Scale{}, doubled, two)
	p := r.program(t, first, second)
	for range 5 {
		must(t, r.stream.Run(p))
	}
	must(t, r.stream.Sync())
	r.wantValues(t, halved, 4, -12)
}

// checkParallel runs several goroutines, each with its own stream, program and memory.
func checkParallel(t conformance.T, r *Runner) {
	var wg sync.WaitGroup
	for g := range 4 {
		x := r.Upload(Of(tensor.F32, tensor.Shape{1}, float64(g+1)))
		square, launch := r.prepare(device.Unary{Func: device.Square}, x)
		p, s := r.program(t, launch), r.another(t)
		wg.Go(func() {
			for range 50 {
				if err := s.Run(p); err != nil {
					t.Errorf("stream %d: %v", g, err)
					return
				}
			}
			if err := s.Sync(); err != nil {
				t.Errorf("stream %d: %v", g, err)
			}
		})
		defer func() { r.wantValues(t, square, float64((g+1)*(g+1))) }()
	}
	wg.Wait()
}
