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
	// largeBytes is so large that every implementation is still transferring data when the abort comes. It is a
	// multiple of 12, because three ranks gather equal numbers of f32.
	largeBytes = 15 << 20
	// settle is how long the check waits for a late write to a buffer.
	settle = 300 * time.Millisecond
)

// checkFreeAfterAbort checks that no rank writes to a buffer after Sync has returned, even if Sync returned an error.
func checkFreeAfterAbort(t conformance.T, s suite) {
	conformance.Long(t)
	const size = 3
	for _, c := range []struct {
		name string
		op   func(r *rig, rank int) collective.Op
	}{
		{"all-gather", func(r *rig, rank int) collective.Op {
			n := int64(largeBytes / 4 / size)
			return collective.AllGather{Buffer: r.memory(rank, make([]byte, largeBytes)), DType: tensor.F32,
				Counts: []int64{n, n, n}}
		}},
		{"all-reduce", func(r *rig, rank int) collective.Op {
			return collective.AllReduce{Buffer: r.memory(rank, make([]byte, largeBytes)), DType: tensor.F32}
		}},
	} {
		for _, part := range []time.Duration{3, 2} { // abort after 1/3 and after 1/2 of the duration of an operation
			t.Run(fmt.Sprintf("%s, 1/%d done", c.name, part), func(t conformance.T) {
				r := newRig(t, s, size, 0)
				ops := make([]collective.Op, size)
				for rank := range ops {
					ops[rank] = c.op(r, rank)
				}
				r.do(func(rank int) collective.Op { return ops[rank] }) // warm-up: allocates memory and fills caches
				start := time.Now()
				r.do(func(rank int) collective.Op { return ops[rank] })
				abort := time.AfterFunc(time.Since(start)/part, func() { r.Comms[0].Abort(errWhim) })
				defer abort.Stop()
				r.each(func(rank int) { r.stayFree(rank, ops[rank]) })
			})
		}
	}
}

// stayFree runs op until the communicator has failed. It then fills op's buffer, and checks that the content does not
// change.
func (r *rig) stayFree(rank int, op collective.Op) {
	var err error
	for deadline := time.Now().Add(patience); err == nil; err = r.sync(rank) {
		if time.Now().After(deadline) {
			r.t.Errorf("rank %d: the abort was never told", rank)
			return
		}
		_ = r.Comms[rank].Enqueue(op) // after a failure, Enqueue also returns an error; Sync reports the failure
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
		r.t.Errorf("rank %d: of %d MiB, %d were written to after Sync had returned %v", rank, len(host)>>20, changed,
			err)
	}
}
