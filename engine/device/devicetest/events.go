package devicetest

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var eventChecks = []streamCheck{
	{"a fresh event is not complete", checkFreshEvent},
	{"running takes back what it will record", checkRerecord},
	{"a program waits for one that has not begun to record", checkResetBeforeRun},
	{"an event is completed from another thread", checkComplete},
	{"resetting a pending event blocks no wait", checkResetPending},
	{"steps alternate with work on the host", checkSteps},
	{"a closed event is refused", checkClosedEvent},
}

func checkFreshEvent(t conformance.T, r *Runner) {
	e := r.event(t)
	if e.Done() {
		t.Error("done before anything was recorded")
	}
	start := time.Now()
	if err := e.WaitHost(moment); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("waiting for an event that is never recorded: got %v, want %v", err, os.ErrDeadlineExceeded)
	}
	if took := time.Since(start); took < moment/2 || took > patience {
		t.Errorf("waited %v, want about %v", took, moment)
	}
}

// checkRerecord requires that an event that one step has recorded is not complete in the next step until it is recorded
// again.
func checkRerecord(t conformance.T, r *Runner) {
	gate, again := r.event(t), r.event(t)
	must(t, r.stream.Record(again))
	must(t, r.stream.Sync())
	p := r.program(t, device.Step{Wait: gate}, device.Step{Record: again})
	other := r.another(t)
	ran := make(chan error, 1)
	go func() { ran <- other.Run(p) }()
	for start := time.Now(); again.Done(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Error("the event stayed complete while the program that records it was running")
			break
		}
	}
	must(t, r.stream.Record(gate))
	must(t, <-ran)
	must(t, other.Sync())
	must(t, again.WaitHost(patience))
}

// checkResetBeforeRun requires that a program waits for a reset event. Without Reset, the program would see the
// completion of the previous step.
func checkResetBeforeRun(t conformance.T, r *Runner) {
	ready, done := r.event(t), r.event(t)
	x := r.Upload(Of(tensor.F32, tensor.Shape{2}, 4, 9))
	root, first := r.prepare(device.Unary{Func: device.Sqrt}, x)
	negated, second := r.prepare(device.Unary{Func: device.Neg}, root)
	records := r.program(t, first, device.Step{Record: ready})
	waits := r.program(t, device.Step{Wait: ready}, second, device.Step{Record: done})
	must(t, r.stream.Run(records))
	must(t, r.stream.Sync())
	for range 3 {
		must(t, ready.Reset())
		must(t, done.Reset())
		if ready.Done() || done.Done() {
			t.Fatal("done after a reset")
		}
		r.wantBlocked(t, done, "the program went on before the step's recording",
			func(s device.Stream) error { return s.Run(waits) }, func() error { return r.stream.Run(records) })
		r.wantValues(t, negated, -2, -3)
	}
}

func checkComplete(t conformance.T, r *Runner) {
	gate, done := r.event(t), r.event(t)
	x := r.Upload(Of(tensor.F32, tensor.Shape{2}, 4, 9))
	root, launch := r.prepare(device.Unary{Func: device.Sqrt}, x)
	p := r.program(t, device.Step{Wait: gate}, launch, device.Step{Record: done})
	waited := make(chan error, 2)
	other := r.another(t)
	go func() { waited <- other.Run(p) }()
	go func() { waited <- gate.WaitHost(patience) }()
	if err := done.WaitHost(moment); err == nil {
		t.Error("the program continued before the event was completed")
	}
	completed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		completed <- gate.Complete()
	}()
	must(t, done.WaitHost(patience))
	must(t, <-completed) // Complete must return before the gate is closed
	for range cap(waited) {
		must(t, <-waited)
	}
	if !gate.Done() {
		t.Error("not done after it was completed")
	}
	must(t, other.Sync())
	must(t, gate.Complete()) // a second Complete has no effect
	r.wantValues(t, root, 2, 3)
}

func checkResetPending(t conformance.T, r *Runner) {
	e := r.event(t)
	waited := make(chan error, 1)
	go func() { waited <- e.WaitHost(patience) }()
	time.Sleep(moment)
	for range 3 {
		must(t, e.Reset())
	}
	must(t, e.Complete())
	must(t, e.Reset()) // a waiter for the complete event may not have woken yet
	must(t, <-waited)
	if e.Done() {
		t.Error("done after a reset")
	}
}

// checkSteps runs a training step with one bucket: a program records a gradient event, a host thread processes the
// gradient and completes a second event, and the program continues.
func checkSteps(t conformance.T, r *Runner) {
	const steps = 200
	ready, reduced := r.event(t), r.event(t)
	x := r.Upload(Of(tensor.F32, tensor.Shape{1}, 3))
	_, launch := r.prepare(device.Unary{Func: device.Square}, x)
	p := r.program(t, launch, device.Step{Record: ready}, launch, device.Step{Wait: reduced}, launch)
	var reductions atomic.Int64
	begin, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		for range begin {
			err := ready.WaitHost(patience)
			reductions.Add(1)
			if err = errors.Join(err, reduced.Complete()); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for step := range int64(steps) {
		must(t, ready.Reset())
		must(t, reduced.Reset())
		begin <- struct{}{}
		must(t, r.stream.Run(p))
		must(t, r.stream.Sync())
		if got := reductions.Load(); got != step+1 {
			t.Fatalf("step %d: the program passed its wait after %d reductions, want %d", step, got, step+1)
		}
	}
	close(begin)
	must(t, <-failed)
}

func checkClosedEvent(t conformance.T, r *Runner) {
	e, err := r.dev.NewEvent()
	must(t, err)
	must(t, e.Close())
	refused(t, e.Reset, "closed")
	refused(t, e.Complete, "closed")
	refused(t, func() error { return e.WaitHost(patience) }, "closed")
}
