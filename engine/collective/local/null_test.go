package local

import (
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rank has a null device. Its program computes two buckets, in one launch each, and waits for both all-reduces.
type rank struct {
	stream         *null.Stream
	program        device.Program
	ready, reduced [2]device.Event
	ops            [2]collective.Op
}

// newRank creates a rank. A launch moves 8 MB at bytesPerSecond. A bucket has bucketBytes.
func newRank(t *testing.T, bytesPerSecond float64, bucketBytes int64) *rank {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := null.New(null.Model{FLOPS: 1e15, BytesPerSecond: bytesPerSecond})
	must(err)
	s, err := dev.NewStream()
	must(err)
	r := &rank{stream: s.(*null.Stream)}
	spec := device.Spec(tensor.F32, 1_000_000)
	k, err := dev.Compile(device.Unary{}, []device.TensorSpec{spec}, []device.TensorSpec{spec})
	must(err)
	region := func(bytes int64) device.Region {
		b, err := dev.Alloc(bytes)
		must(err)
		return device.Whole(b)
	}
	var steps []device.Step
	for i := range r.ops {
		r.ready[i], err = dev.NewEvent()
		must(err)
		r.reduced[i], err = dev.NewEvent()
		must(err)
		r.ops[i] = collective.AllReduce{Buffer: region(bucketBytes), DType: tensor.F32, After: r.ready[i],
			Done: r.reduced[i]}
		launch := &device.Launch{Kernel: k, In: []device.Region{region(spec.Size())},
			Out: []device.Region{region(spec.Size())}}
		steps = append(steps, device.Step{Launch: launch}, device.Step{Record: r.ready[i]})
	}
	steps = append(steps, device.Step{Wait: r.reduced[0]}, device.Step{Wait: r.reduced[1]})
	r.program, err = dev.NewProgram(steps)
	must(err)
	return r
}

func (r *rank) step(comm collective.Communicator) error {
	for i := range r.ops {
		if err := r.ready[i].Reset(); err != nil {
			return err
		}
		if err := r.reduced[i].Reset(); err != nil {
			return err
		}
	}
	for _, op := range r.ops {
		if err := comm.Enqueue(op); err != nil {
			return err
		}
	}
	return r.stream.Run(r.program)
}

// run runs some steps on all ranks.
func run(t *testing.T, ranks []*rank, model Model, steps int) {
	t.Helper()
	comms, err := New(len(ranks), Options{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() {
			for range steps {
				if err := r.step(comms[i]); err != nil {
					t.Errorf("rank %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, c := range comms {
		if err := c.Sync(t.Context()); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// Launches take 8 ms on rank 0 and 16 ms on rank 1. An all-reduce of 20 MB between two ranks takes 20 ms at 1 GB/s. On
// the slower rank, buckets are ready at 16 and 32 ms. The first reduction therefore runs from 16 to 36 ms, and the
// second from 36 to 56 ms.
func TestModelledOverlap(t *testing.T) {
	for _, c := range []struct {
		name        string
		bucketBytes int64
		model       Model
		want        time.Duration
	}{
		{"communication bound", 20e6, Model{BytesPerSecond: 1e9}, 56 * time.Millisecond},
		{"hidden but for the last", 4e6, Model{BytesPerSecond: 1e9}, 36 * time.Millisecond},
		{"latency of two messages", 0, Model{LatencySeconds: 1e-3}, 34 * time.Millisecond},
		{"no time at all", 20e6, Model{}, 32 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranks := []*rank{newRank(t, 1e9, c.bucketBytes), newRank(t, 0.5e9, c.bucketBytes)}
			run(t, ranks, c.model, 1)
			for i, r := range ranks {
				if got := r.stream.Clock(); got != c.want {
					t.Errorf("rank %d: got a step of %v, want %v", i, got, c.want)
				}
			}
			run(t, ranks, c.model, 9) // in a second group, the modelled time of the streams continues
			for i, r := range ranks {
				if got, want := r.stream.Clock(), 10*c.want; got != want {
					t.Errorf("rank %d: got %v for 10 steps, want %v", i, got, want)
				}
			}
		})
	}
}

func TestModelledDuration(t *testing.T) {
	buffer := device.Region{Bytes: 8e6}
	m := Model{LatencySeconds: 1e-3, BytesPerSecond: 1e9}
	for _, c := range []struct {
		op   collective.Op
		size int
		want time.Duration
	}{
		{collective.AllReduce{Buffer: buffer}, 4, 18 * time.Millisecond}, // 6 messages of 2 MB are 6/4 of 8 MB
		{collective.AllGather{Buffer: buffer}, 4, 9 * time.Millisecond},
		{collective.Barrier{}, 4, 3 * time.Millisecond},
		{collective.AllReduce{Buffer: buffer}, 1, 0},
	} {
		if got := m.Duration(c.op, c.size); got != c.want {
			t.Errorf("%s among %d: got %v, want %v", c.op.Kind(), c.size, got, c.want)
		}
	}
}

func TestThousandRanksWithoutMemory(t *testing.T) {
	ranks := make([]*rank, 1000)
	for i := range ranks {
		ranks[i] = newRank(t, 1e9*float64(1+i%5), 100e6)
	}
	steps := 20
	if testing.Short() {
		steps = 2
	}
	start := time.Now()
	run(t, ranks, Model{LatencySeconds: 1e-6, BytesPerSecond: 10e9}, steps)
	t.Logf("%d steps of 1000 ranks took %v", steps, time.Since(start))
	for i, r := range ranks {
		if r.stream.Clock() != ranks[0].stream.Clock() {
			t.Fatalf("rank %d: clock %v, want that of rank 0, %v", i, r.stream.Clock(), ranks[0].stream.Clock())
		}
	}
}
