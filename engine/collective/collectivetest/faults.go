package collectivetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var faultChecks = []check{
	{name: "an operation that a rank does not enter times out and names it", run: checkTimeout},
	{name: "a slow program alone causes no time-out", run: checkSlowProgram},
	{name: "the death of a rank in an operation", run: checkDeathInOperation},
	{name: "the death of a rank while nothing runs", run: checkDeathIdle},
	{name: "the death of a rank while others wait for their programs", run: checkDeathBefore},
	{name: "an abort reaches all ranks with its cause", run: checkAbort},
	{name: "an abort ends waiting for a program", run: checkAbortBefore},
	{name: "nothing is written to buffers after an aborted operation", run: checkFreeAfterAbort, near: true},
	{name: "a failed program fails the group", run: checkFailedProgram},
	{name: "different operations are detected", run: checkMismatch},
	{name: "closing in order does not disturb ranks that are done", run: checkOrderlyClose},
	{name: "closing as soon as the last operation is done", run: checkCloseWhenDone},
	{name: "an operation with a rank that has closed", run: checkClosedPeer},
	{name: "closing with work in the queue is an error", run: checkUnfinishedClose},
	{name: "a closed communicator refuses operations", run: checkClosed},
	{name: "dying, aborting and closing at once", run: checkStorm},
}

func checkTimeout(t conformance.T, s suite) {
	s.withLimits(t, 300*time.Millisecond, timesOut)
}

// withLimits calls f with a time-out: first the one in shortest. If a busy machine causes an unexpected time-out, f
// returns a description of it. withLimits then tries time-outs that are 10 and 100 times as long. With the longest one,
// f must succeed.
func (s suite) withLimits(t conformance.T, shortest time.Duration,
	f func(t conformance.T, s suite, limit time.Duration) (late string)) {
	for _, times := range []time.Duration{1, 10, 100} {
		limit := s.limit(shortest) * times
		late := f(t, s, limit)
		if late == "" || t.Failed() {
			return
		}
		if times < 100 {
			t.Logf("with a time-out of %v: %s; trying again", limit, late)
		} else {
			t.Errorf("with a time-out of %v: %s", limit, late)
		}
	}
}

func timesOut(t conformance.T, s suite, limit time.Duration) (disturbed string) {
	r := newRig(t, s, 3, limit)
	errs := make([]error, r.size)
	r.each(func(rank int) {
		r.enqueue(rank, r.sum(rank, "all come"))
		errs[rank] = r.sync(rank)
	})
	var late *collective.TimeoutError
	if err := errors.Join(errs...); errors.As(err, &late) {
		return fmt.Sprintf("the operation that all ranks enter: %v", err)
	} else if err != nil {
		t.Errorf("the operation that all ranks enter: %v", err)
		return ""
	}
	done := []*flag{{}, {}, {}}
	others := make([]string, r.size)
	start := time.Now()
	r.each(func(rank int) {
		if rank == 1 {
			return
		}
		op := r.sum(rank, "one does not").(collective.AllReduce)
		op.Done = done[rank]
		r.enqueue(rank, op)
		err := r.sync(rank)
		var late *collective.TimeoutError
		if !errors.As(err, &late) {
			t.Errorf("rank %d: got %v, want a TimeoutError", rank, err)
			return
		}
		if took := time.Since(start); took < limit || took > limit+promptly {
			t.Errorf("rank %d: took %v with a limit of %v", rank, took, limit)
		}
		switch {
		case late.Limit != limit || !strings.Contains(late.Op, `"one does not"`) || late.Number != 2 ||
			!slices.Contains(late.Missing, 1):
			t.Errorf("rank %d: got %+v, want rank 1 missing in operation 2", rank, late)
		case !slices.Equal(late.Missing, []int{1}):
			// either ranks 0 and 2 did not enter within one time-out, or the list is wrong
			others[rank] = fmt.Sprintf("rank %d: got %+v, want only rank 1 missing in operation 2", rank, late)
		}
		if !done[rank].Done() {
			t.Errorf("rank %d: Done was not completed", rank)
		}
	})
	if err := r.failure(1, promptly); err == nil {
		t.Error("the rank that did not come was never told")
	}
	return strings.Join(slices.DeleteFunc(others, func(s string) bool { return s == "" }), "; ")
}

// checkSlowProgram checks that the time limit starts when a rank enters an operation, not when it enqueues the
// operation.
func checkSlowProgram(t conformance.T, s suite) {
	s.withLimits(t, 300*time.Millisecond, func(t conformance.T, s suite, limit time.Duration) (late string) {
		r := newRig(t, s, 2, limit)
		ready := &flag{}
		r.each(func(rank int) {
			op := r.sum(rank, "late on both").(collective.AllReduce)
			op.After = ready
			r.enqueue(rank, op)
		})
		time.Sleep(2 * limit)
		ready.Complete()
		errs := make([]error, r.size)
		r.each(func(rank int) { errs[rank] = r.sync(rank) })
		var timeout *collective.TimeoutError
		if err := errors.Join(errs...); errors.As(err, &timeout) {
			return err.Error()
		} else if err != nil {
			t.Error(err)
		}
		return ""
	})
}

// died checks that all other ranks report the death of a rank. The parameter dead is that rank.
func (r *rig) died(dead int) {
	r.t.Helper()
	r.each(func(rank int) {
		if rank == dead {
			return
		}
		err := r.failure(rank, promptly)
		var peer *collective.PeerError
		if !errors.As(err, &peer) || peer.Rank != dead || !errors.Is(err, collective.ErrDied) {
			r.t.Errorf("rank %d: got %v, want that rank %d died", rank, err, dead)
		}
		if err := r.Comms[rank].Enqueue(r.sum(rank, "afterwards")); err == nil {
			r.t.Errorf("rank %d: enqueue after the failure: no error", rank)
		}
	})
}

// forDead runs f once for each of the ranks 0, 1 and 2. f must let this rank die. If ranks are processes, forDead skips
// rank 1, because restarting a process takes long.
func forDead(t conformance.T, s suite, f func(t conformance.T, r *rig, dead int)) {
	for dead, name := range []string{"rank 0 dies", "rank 1 dies", "rank 2 dies"} {
		if s.Apart && dead == 1 {
			continue
		}
		t.Run(name, func(t conformance.T) {
			r := newRig(t, s, 3, 0)
			r.do(func(rank int) collective.Op { return r.sum(rank, "all live") })
			f(t, r, dead)
		})
	}
}

func checkDeathInOperation(t conformance.T, s suite) {
	forDead(t, s, func(_ conformance.T, r *rig, dead int) {
		r.each(func(rank int) {
			if rank == dead {
				time.Sleep(moment)
				r.Kill(rank)
				return
			}
			r.enqueue(rank, r.sum(rank, "one dies"))
			if err := r.sync(rank); err == nil {
				r.t.Errorf("rank %d: no error", rank)
			}
		})
		r.died(dead)
	})
}

func checkDeathIdle(t conformance.T, s suite) {
	forDead(t, s, func(_ conformance.T, r *rig, dead int) {
		r.Kill(dead)
		r.died(dead)
	})
}

func checkDeathBefore(t conformance.T, s suite) {
	forDead(t, s, func(t conformance.T, r *rig, dead int) {
		never, done := &flag{}, make([]flag, r.size)
		r.each(func(rank int) {
			op := r.sum(rank, "not yet").(collective.AllReduce)
			op.After, op.Done = never, &done[rank]
			r.enqueue(rank, op)
		})
		r.Kill(dead)
		r.died(dead)
		for rank := range done {
			if err := done[rank].WaitHost(promptly); err != nil && rank != dead {
				t.Errorf("rank %d: Done was not completed: %v", rank, err)
			}
		}
	})
}

var errWhim = errors.New("a whim")

func checkAbort(t conformance.T, s suite) {
	for _, waiting := range []bool{true, false} {
		r := newRig(t, s, 3, 0)
		r.each(func(rank int) {
			if rank == 1 {
				time.Sleep(moment)
				r.Comms[1].Abort(errWhim)
			} else if waiting {
				r.enqueue(rank, r.sum(rank, "one aborts"))
				if err := r.sync(rank); err == nil {
					t.Errorf("rank %d: no error", rank)
				}
			}
		})
		if err := r.Comms[1].Err(); !errors.Is(err, collective.ErrAborted) || !errors.Is(err, errWhim) {
			t.Errorf("the rank itself: got %v", err)
		}
		for _, rank := range []int{0, 2} {
			err := r.failure(rank, promptly)
			var peer *collective.PeerError
			if !errors.As(err, &peer) || peer.Rank != 1 || !strings.Contains(err.Error(), errWhim.Error()) ||
				errors.Is(err, collective.ErrDied) {
				t.Errorf("rank %d: got %v, want that rank 1 aborted of %q", rank, err, errWhim)
			}
		}
		r.Comms[1].Abort(errors.New("another")) // too late to have an effect
		if err := r.Comms[1].Err(); !errors.Is(err, errWhim) {
			t.Errorf("after a second abort: got %v", err)
		}
	}
}

func checkAbortBefore(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	never, done := &flag{}, &flag{}
	op := r.sum(0, "never").(collective.AllReduce)
	op.After, op.Done = never, done
	r.enqueue(0, op)
	time.Sleep(moment)
	r.Comms[0].Abort(errWhim)
	if err := done.WaitHost(promptly); err != nil {
		t.Errorf("Done was not completed: %v", err)
	}
	if err := r.sync(0); !errors.Is(err, errWhim) {
		t.Errorf("got %v, want %v", err, errWhim)
	}
}

// brokenEvent is an event whose program failed.
type brokenEvent struct{ flag }

func (*brokenEvent) WaitHost(time.Duration) error { return errWhim }

func checkFailedProgram(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	op := r.sum(0, "of a program").(collective.AllReduce)
	op.After = &brokenEvent{}
	// enqueue before rank 0 fails: after the failure, Enqueue may return an error
	r.enqueue(1, r.sum(1, "of a program"))
	r.enqueue(0, op)
	if err := r.sync(0); !errors.Is(err, errWhim) {
		t.Errorf("rank 0: got %v, want %v", err, errWhim)
	}
	var peer *collective.PeerError
	if err := r.sync(1); !errors.As(err, &peer) || peer.Rank != 0 || !strings.Contains(err.Error(), errWhim.Error()) {
		t.Errorf("rank 1: got %v, want that rank 0 failed of %q", err, errWhim)
	}
}

func checkMismatch(t conformance.T, s suite) {
	for _, c := range []struct {
		name string
		odd  func(r *rig) collective.Op
	}{
		{"another size", func(r *rig) collective.Op {
			return collective.AllReduce{Buffer: r.memory(1, make([]byte, 4*6)), DType: tensor.F32}
		}},
		{"a much larger size", func(r *rig) collective.Op {
			return collective.AllReduce{Buffer: r.memory(1, make([]byte, 32<<20)), DType: tensor.F32}
		}},
		{"another type", func(r *rig) collective.Op {
			return collective.AllReduce{Buffer: r.memory(1, make([]byte, 4*5)), DType: tensor.I32}
		}},
		{"another reduction", func(r *rig) collective.Op {
			return collective.AllReduce{Buffer: r.memory(1, make([]byte, 4*5)), DType: tensor.F32,
				Reduce: collective.Max}
		}},
		{"another kind", func(*rig) collective.Op { return collective.Barrier{} }},
		{"other counts", func(r *rig) collective.Op {
			return collective.ReduceScatter{Buffer: r.memory(1, make([]byte, 4*5)), DType: tensor.F32,
				Counts: []int64{3, 1, 1}}
		}},
	} {
		t.Run(c.name, func(t conformance.T) {
			r := newRig(t, s, 3, 10*time.Second)
			r.do(func(rank int) collective.Op { return r.sum(rank, "all agree") })
			found := make([]bool, r.size)
			r.each(func(rank int) {
				op := r.sum(rank, "")
				if rank == 1 {
					op = c.odd(r)
				}
				err := r.Comms[rank].Enqueue(op)
				if err == nil { // otherwise the other two ranks found the mismatch first
					err = r.sync(rank)
				}
				var mismatch *collective.MismatchError
				var peer *collective.PeerError
				switch {
				case errors.As(err, &mismatch):
					found[rank] = true
					if mismatch.Number != 2 || mismatch.Got == mismatch.Want {
						t.Errorf("rank %d: got %+v, want two operations number 2", rank, mismatch)
					}
				case !errors.As(err, &peer):
					t.Errorf("rank %d: got %v, want a MismatchError or what another rank found", rank, err)
				}
			})
			if !slices.Contains(found, true) {
				t.Error("no rank has a MismatchError")
			}
		})
	}
}

func checkOrderlyClose(t conformance.T, s suite) {
	for range s.rounds() { // repeat the race between the first Close and the end of the last operation
		g := s.open(t, 3, 0)
		r := &rig{Group: g, t: t, size: 3}
		r.openDevices()
		r.each(func(rank int) {
			for range 3 {
				r.enqueue(rank, r.sum(rank, "last"))
			}
			if err := r.sync(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			if err := r.Comms[rank].Close(); err != nil {
				t.Errorf("rank %d: close: %v", rank, err)
			}
			if err := r.Comms[rank].Err(); err != nil {
				t.Errorf("rank %d: after close: %v", rank, err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// lingering is an event whose Complete method returns late: other goroutines see the event as complete long before.
type lingering struct{ flag }

func (l *lingering) Complete() error {
	l.done.Store(true)
	time.Sleep(moment)
	return nil
}

func checkCloseWhenDone(t conformance.T, s suite) {
	r := &rig{Group: s.open(t, 2, 0), t: t, size: 2}
	r.openDevices()
	r.each(func(rank int) {
		done := &lingering{}
		r.enqueue(rank, collective.AllReduce{Buffer: r.memory(rank, make([]byte, 20)), DType: tensor.F32, Done: done})
		if err := done.WaitHost(patience); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		if err := r.Comms[rank].Close(); err != nil {
			t.Errorf("rank %d: close: %v", rank, err)
		}
	})
}

func checkClosedPeer(t conformance.T, s suite) {
	for _, leaver := range []int{0, 1} {
		r := newRig(t, s, 3, 0)
		r.do(func(rank int) collective.Op { return r.sum(rank, "together") })
		if err := r.Comms[leaver].Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		r.Comms[leaver] = closedAlready{r.Comms[leaver]}
		r.each(func(rank int) {
			if rank == leaver {
				return
			}
			err := r.Comms[rank].Enqueue(r.sum(rank, "without it"))
			if err == nil {
				err = r.sync(rank)
			}
			var peer *collective.PeerError
			if !errors.As(err, &peer) || peer.Rank != leaver || !errors.Is(err, collective.ErrClosed) {
				t.Errorf("rank %d: got %v, want that rank %d has closed", rank, err, leaver)
			}
		})
	}
}

// closedAlready is a communicator that the test itself has closed.
type closedAlready struct{ collective.Communicator }

func (closedAlready) Close() error { return nil }

func checkUnfinishedClose(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	r.enqueue(0, r.sum(0, "alone"))
	if err := r.Comms[0].Close(); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("got %v, want %v", err, collective.ErrClosed)
	}
	r.Comms[0] = closedAlready{r.Comms[0]}
	var peer *collective.PeerError
	if err := r.failure(1, promptly); !errors.As(err, &peer) || peer.Rank != 0 {
		t.Errorf("the other rank: got %v, want that rank 0 gave up", err)
	}
}

func checkClosed(t conformance.T, s suite) {
	r := newRig(t, s, 1, 0)
	c := r.Comms[0]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.Comms[0] = closedAlready{c}
	if err := c.Enqueue(r.sum(0, "")); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("enqueue: got %v, want %v", err, collective.ErrClosed)
	}
	if err := c.Close(); err == nil {
		t.Error("second close: no error")
	}
	c.Abort(errWhim)
	if err := c.Err(); err != nil {
		t.Errorf("abort after close: got %v, want none", err)
	}
}

// checkStorm checks only that no rank hangs and that every rank gets an error.
func checkStorm(t conformance.T, s suite) {
	for round := range s.rounds() {
		r := newRig(t, s, 4, 0)
		r.each(func(rank int) {
			for i := range 10 {
				if r.Comms[rank].Enqueue(r.sum(rank, "storm")) != nil {
					break
				}
				if i == round%10 {
					switch rank {
					case 1:
						r.Comms[rank].Abort(errWhim)
					case 2:
						r.Kill(rank)
					}
				}
			}
			if rank != 2 && r.failure(rank, promptly) == nil {
				t.Errorf("round %d: rank %d: no error", round, rank)
			}
		})
		if t.Failed() {
			return
		}
	}
}
