package collectivetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const (
	// largeBytes takes every implementation long enough for an abort to fall into the middle of it.
	largeBytes = 96 << 20
	// settle is how long a write that comes too late has to show.
	settle = 300 * time.Millisecond
)

// checkFreeAfterAbort: when Sync has returned, also with an error, buffers are the caller's again: nobody writes what
// was under way into them.
func checkFreeAfterAbort(t conformance.T, s suite) {
	conformance.Long(t)
	const size = 3
	for _, c := range []struct {
		name string
		op   func(r *rig, rank int) collective.Op
	}{
		{"all-gather", func(r *rig, rank int) collective.Op {
			n := int64(largeBytes / 4 / size)
			return collective.AllGather{Buffer: r.memory(rank, make([]byte, largeBytes)), DType: tensor.F32, Counts: []int64{n, n, n}}
		}},
		{"all-reduce", func(r *rig, rank int) collective.Op {
			return collective.AllReduce{Buffer: r.memory(rank, make([]byte, largeBytes)), DType: tensor.F32}
		}},
	} {
		for _, part := range []time.Duration{3, 2} { // of the time that one takes
			t.Run(fmt.Sprintf("%s, 1/%d done", c.name, part), func(t conformance.T) {
				r := newRig(t, s, size, 0)
				ops := make([]collective.Op, size)
				for rank := range ops {
					ops[rank] = c.op(r, rank)
				}
				r.do(func(rank int) collective.Op { return ops[rank] }) // memory is there, caches are full
				start := time.Now()
				r.do(func(rank int) collective.Op { return ops[rank] })
				abort := time.AfterFunc(time.Since(start)/part, func() { r.Comms[0].Abort(errWhim) })
				defer abort.Stop()
				r.each(func(rank int) { r.stayFree(rank, ops[rank]) })
			})
		}
	}
}

// stayFree runs op until the communicator has failed, and then wants op's buffer to keep what it is filled with.
func (r *rig) stayFree(rank int, op collective.Op) {
	var err error
	for deadline := time.Now().Add(patience); err == nil; err = r.sync(rank) {
		if time.Now().After(deadline) {
			r.t.Errorf("rank %d: the abort was never told", rank)
			return
		}
		_ = r.Comms[rank].Enqueue(op) // fails once the communicator has, which Sync tells
	}
	region, _, _ := op.Memory()
	host, pattern := r.host(region), bytes.Repeat([]byte{0xa5}, 1<<20)
	for rest := host; len(rest) > 0; rest = rest[min(len(rest), len(pattern)):] {
		copy(rest, pattern)
	}
	time.Sleep(settle)
	changed := 0
	for rest := host; len(rest) > 0; rest = rest[min(len(rest), len(pattern)):] {
		if n := min(len(rest), len(pattern)); !bytes.Equal(rest[:n], pattern[:n]) {
			changed++
		}
	}
	if changed > 0 {
		r.t.Errorf("rank %d: of %d MiB, %d were written to after Sync had returned %v", rank, len(host)>>20, changed, err)
	}
}
