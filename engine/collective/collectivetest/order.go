package collectivetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var orderChecks = []check{
	{name: "a barrier blocks all ranks until the last has entered", run: checkBarrier},
	{name: "an operation waits for its After and completes its Done", run: checkEvents},
	{name: "a program's bucket is reduced between two of its launches", run: checkProgram},
	{name: "many operations of ranks of unequal speed", run: checkUnequalSpeed},
	{name: "enqueue does not wait for other ranks", run: checkEnqueueReturns},
	{name: "sync ends with its context", run: checkSyncContext},
	{name: "invalid operations are refused without side effects", run: checkRefused},
	{name: "progress is reported", run: checkProgress},
	{name: "steady state allocates nothing", run: checkAllocations, near: true},
}

func checkBarrier(t conformance.T, s suite) {
	forSizes(t, s, func(t conformance.T, r *rig) {
		var entered atomic.Int64
		for round := range int64(10) {
			r.each(func(rank int) {
				if int64(rank) == round%int64(r.size) {
					time.Sleep(moment / 10)
				}
				entered.Add(1)
				r.enqueue(rank, collective.Barrier{Name: "barrier"})
				if err := r.sync(rank); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
				if got, want := entered.Load(), (round+1)*int64(r.size); got < want {
					t.Errorf("round %d: rank %d left after %d had entered, want %d", round, rank, got, want)
				}
			})
			if t.Failed() {
				return
			}
		}
	})
}

func checkEvents(t conformance.T, s suite) {
	r := newRig(t, s, 3, 0)
	const n = 1000
	in := r.summands(3, tensor.F32, n)
	want := r.oracle(tensor.F32, collective.Sum, in)
	r.each(func(rank int) {
		ready, done := r.event(rank), r.event(rank)
		m := r.memory(rank, make([]byte, len(in[rank])))
		var op collective.Op = collective.AllReduce{Buffer: m, DType: tensor.F32, After: ready, Done: done}
		for step := range 5 {
			if errors.Join(ready.Reset(), done.Reset()) != nil {
				t.Error("reset failed")
			}
			clear(r.host(m))
			r.enqueue(rank, op)
			if step == 0 {
				if err := done.WaitHost(moment); err == nil {
					t.Errorf("rank %d: done before its After event was complete", rank)
				}
			}
			copy(r.host(m), in[rank]) // write the buffer before the event is complete, as a program does
			if err := ready.Complete(); err != nil {
				t.Error(err)
			}
			if err := done.WaitHost(patience); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			if !bytes.Equal(r.host(m), want) {
				t.Errorf("rank %d, step %d: wrong sums when Done was complete", rank, step)
				return
			}
		}
		if err := r.sync(rank); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
}

// checkProgram imitates a training step: a device program writes a gradient, records an event, waits for the reduced
// gradient and uses it.
func checkProgram(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	r.each(func(rank int) {
		dev := r.devs[rank]
		spec := device.Spec(tensor.F32, 4)
		x := r.memory(rank, values(float32(rank+1), 2, 3, 4))
		gradient, result := r.memory(rank, make([]byte, 16)), r.memory(rank, make([]byte, 16))
		k, err := dev.Compile(device.Unary{Func: device.Neg}, []device.TensorSpec{spec}, []device.TensorSpec{spec})
		if err != nil {
			t.Error(err)
			return
		}
		launch := func(in, out device.Region) device.Step {
			return device.Step{Launch: &device.Launch{Kernel: k, In: []device.Region{in}, Out: []device.Region{out}}}
		}
		ready, reduced := r.event(rank), r.event(rank)
		p, err := dev.NewProgram([]device.Step{launch(x, gradient), {Record: ready}, {Wait: reduced},
			launch(gradient, result)})
		if err != nil {
			t.Error(err)
			return
		}
		stream, err := dev.NewStream()
		if err != nil {
			t.Error(err)
			return
		}
		var op collective.Op = collective.AllReduce{Buffer: gradient, DType: tensor.F32, After: ready, Done: reduced}
		for step := range 20 {
			if err := errors.Join(ready.Reset(), reduced.Reset()); err != nil {
				t.Error(err)
			}
			if err := r.Comms[rank].Enqueue(op); err != nil {
				t.Errorf("rank %d, step %d: %v", rank, step, err)
				return // otherwise the program would wait forever
			}
			if err := errors.Join(stream.Run(p), stream.Sync()); err != nil {
				t.Error(err)
			}
			if want := values(3, 4, 6, 8); !bytes.Equal(r.host(result), want) {
				t.Errorf("rank %d, step %d: got % x, want % x", rank, step, r.host(result), want)
			}
		}
	})
}

func values(v ...float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// checkUnequalSpeed runs one list of operations twice with different delays. The results of both runs must be
// bit-equal.
func checkUnequalSpeed(t conformance.T, s suite) {
	const size, steps = 4, 60
	var first [][]byte
	for run := range uint64(2) {
		r := newRig(t, s, size, 0)
		results := make([][]byte, size)
		r.each(func(rank int) {
			list := rand.New(rand.NewPCG(1, 1)) // the same seed gives the same operations on all ranks and in both runs
			data := rand.New(rand.NewPCG(2, uint64(rank)))
			delays := rand.New(rand.NewPCG(run, uint64(rank)))
			var buffers []device.Region
			for i := range steps {
				op, m := r.mixed(rank, list, data)
				buffers = append(buffers, m)
				if delays.IntN(3) == 0 {
					time.Sleep(time.Duration(delays.IntN(2000*(rank+1))) * time.Microsecond)
				}
				r.enqueue(rank, op)
				if i%20 == 19 {
					if err := r.sync(rank); err != nil {
						t.Errorf("rank %d: %v", rank, err)
						return
					}
				}
			}
			for _, m := range buffers {
				results[rank] = append(results[rank], r.host(m)...)
			}
		})
		if t.Failed() {
			return
		}
		for rank := range results {
			if !bytes.Equal(results[rank], results[0]) {
				t.Errorf("run %d: rank %d has other bits than rank 0", run, rank)
			}
		}
		if run == 0 {
			first = results
		} else if !bytes.Equal(first[0], results[0]) {
			t.Error("the second run, with other delays, gave other bits")
		}
	}
}

// mixed returns a random operation, one after which all ranks have the same bytes, and the region with these bytes.
func (r *rig) mixed(rank int, list, data *rand.Rand) (collective.Op, device.Region) {
	n := list.IntN(1 << list.IntN(17))
	switch list.IntN(4) {
	case 0:
		m := r.memory(rank, random(data, tensor.U8, n))
		return collective.Broadcast{Name: "broadcast", Buffer: m, Root: list.IntN(r.size)}, m
	case 1:
		counts := make([]int64, r.size)
		for i := range counts {
			counts[i] = int64(list.IntN(n + 1))
		}
		m := r.memory(rank, random(data, tensor.I32, int(total(counts))))
		return collective.AllGather{Name: "gather", Buffer: m, DType: tensor.I32, Counts: counts}, m
	}
	dt := types[list.IntN(len(types))]
	m := r.memory(rank, random(data, dt, n))
	return collective.AllReduce{Name: "reduce", Buffer: m, DType: dt, Reduce: reductions[list.IntN(len(reductions))]}, m
}

func checkEnqueueReturns(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	start := time.Now()
	for i := range 500 {
		r.enqueue(0, r.sum(0, fmt.Sprint(i)))
	}
	if took := time.Since(start); took > promptly {
		t.Errorf("500 operations took %v to enqueue while the other rank was away", took)
	}
	for i := range 500 {
		r.enqueue(1, r.sum(1, fmt.Sprint(i)))
	}
	r.syncAll()
}

func checkSyncContext(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	r.enqueue(0, r.sum(0, "alone"))
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	if err := r.Comms[0].Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	r.enqueue(1, r.sum(1, "alone"))
	r.syncAll()
}

func checkRefused(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	m := r.memory(0, make([]byte, 64))
	part := func(offset, bytes int64) device.Region {
		return device.Region{Buffer: m.Buffer, Offset: offset, Bytes: bytes}
	}
	for _, c := range []struct {
		name string
		op   collective.Op
	}{
		{"no operation", nil},
		{"no buffer", collective.AllReduce{DType: tensor.F32}},
		{"no element type", collective.AllReduce{Buffer: m}},
		{"sum of opaque bytes", collective.AllReduce{Buffer: m, DType: tensor.Opaque}},
		{"unknown reduction", collective.AllReduce{Buffer: m, DType: tensor.F32, Reduce: 9}},
		{"half an element", collective.AllReduce{Buffer: part(0, 6), DType: tensor.F32}},
		{"between elements", collective.AllReduce{Buffer: part(2, 8), DType: tensor.F32}},
		{"beyond the buffer", collective.AllReduce{Buffer: part(32, 64), DType: tensor.F32}},
		{"root that does not exist", collective.Broadcast{Buffer: m, Root: 2}},
		{"negative root", collective.Broadcast{Buffer: m, Root: -1}},
		{"counts for too few ranks", collective.AllGather{Buffer: m, DType: tensor.F32, Counts: []int64{16}}},
		{"counts of too much", collective.AllGather{Buffer: m, DType: tensor.F32, Counts: []int64{16, 1}}},
		{"counts of too little", collective.ReduceScatter{Buffer: m, DType: tensor.F32, Counts: []int64{8, 7}}},
		{"negative count", collective.ReduceScatter{Buffer: m, DType: tensor.F32, Counts: []int64{17, -1}}},
		{"counts that overflow", collective.AllGather{Buffer: m, DType: tensor.U8, Counts: []int64{1 << 62, 1 << 62}}},
	} {
		if err := r.Comms[0].Enqueue(c.op); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	r.do(func(rank int) collective.Op { return r.sum(rank, "after the mistakes") })
}

func checkProgress(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	r.do(func(rank int) collective.Op { return r.sum(rank, "first") })
	r.enqueue(0, r.sum(0, "second"))
	// positions collects the progress that each rank reports for itself. If rank 0 is a Watcher, which knows the
	// progress of all ranks, the list that it returns is also checked.
	positions := func() (list []collective.Progress) {
		for _, c := range r.Comms {
			list = append(list, c.(collective.Positioner).Position())
		}
		return list
	}
	ways := []func() []collective.Progress{positions}
	if watcher, ok := r.Comms[0].(collective.Watcher); ok {
		ways = append(ways, watcher.Progress)
	}
	for _, way := range ways {
		var got []collective.Progress
		for start := time.Now(); time.Since(start) < promptly; time.Sleep(time.Millisecond) {
			if got = way(); got[0].Entered == 2 && got[1].Finished == 1 {
				break
			}
		}
		want := []collective.Progress{{Rank: 0, Entered: 2, Finished: 1, Last: "second"},
			{Rank: 1, Entered: 1, Finished: 1, Last: "first"}}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	r.enqueue(1, r.sum(1, "second"))
	r.syncAll()
}

func checkAllocations(t conformance.T, s suite) {
	r := newRig(t, s, 2, 0)
	after, done := make([]flag, r.size), make([]flag, r.size)
	ops := make([][]collective.Op, r.size)
	for rank := range ops {
		m := r.memory(rank, make([]byte, 4*4*50_000))
		counts := []int64{150_000, 50_000}
		ops[rank] = []collective.Op{
			collective.AllReduce{Name: "large", Buffer: m, DType: tensor.F32, After: &after[rank]},
			collective.AllReduce{Name: "small", Buffer: device.Region{Buffer: m.Buffer, Bytes: 400},
				DType: tensor.BF16},
			collective.AllGather{Name: "parts", Buffer: m, DType: tensor.F32, Counts: counts},
			collective.ReduceScatter{Name: "parts", Buffer: m, DType: tensor.F32, Counts: counts},
			collective.Broadcast{Name: "bytes", Buffer: m},
			collective.Barrier{Name: "end", Done: &done[rank]},
		}
	}
	step := func() {
		for rank := range ops {
			after[rank].Reset()
			done[rank].Reset()
			for _, op := range ops[rank] {
				if err := r.Comms[rank].Enqueue(op); err != nil {
					t.Fatal(err)
				}
			}
			after[rank].Complete()
		}
		for rank := range done {
			if err := done[rank].WaitHost(patience); err != nil {
				t.Fatal(err)
			}
		}
	}
	allocs := conformance.AllocsPerRun(20, step)
	for range 2 { // the minimum of two counts: other goroutines and the runtime may also allocate
		allocs = min(allocs, conformance.AllocsPerRun(20, step))
	}
	if allocs > s.Allocations {
		t.Errorf("got %g allocations a step of all ranks, want at most %g", allocs, s.Allocations)
	}
}
