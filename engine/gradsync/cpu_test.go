package gradsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// openCPU opens CPU devices of one thread. It skips the test if there is no CPU device.
func openCPU(t testing.TB) func(int) device.Device {
	t.Helper()
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	return func(int) device.Device {
		dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
}

func TestCPUGradientsOfAnySplitAreThoseOfOneDevice(t *testing.T) {
	open := openCPU(t)
	n := uint64(60)
	if testing.Short() {
		n = 12
	}
	for seed := range n {
		c := draw(1000 + seed)
		c.open = open
		t.Run(c.String(), func(t *testing.T) { c.check(t) })
	}
}

// connectShared connects ranks by shared memory, as the ranks of one host are connected.
func connectShared(t testing.TB, size int) []collective.Communicator {
	t.Helper()
	address, out, errs := shm.NewAddress(), make([]collective.Communicator, size), make([]error, size)
	var all sync.WaitGroup
	for i := range out {
		all.Go(func() {
			c, err := shm.Connect(t.Context(), shm.Config{Rank: i, Size: size, Address: address, Timeout: time.Minute})
			out[i], errs[i] = c, err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGradientsOverSharedMemoryAreThoseOfOneDevice(t *testing.T) {
	open := openCPU(t)
	if err := shm.Available(); err != nil {
		needtest.Missing(t, "shm", err)
	}
	for seed := range uint64(12) {
		c := draw(2000 + seed)
		c.open, c.connect = open, connectShared
		t.Run(c.String(), func(t *testing.T) { c.check(t) })
	}
}

// The number of samples may affect the layout of weight gradients. It must not affect the flat buffer.
func TestCPUSharesMayChangeEveryStep(t *testing.T) {
	j := job{dtype: tensor.F32, micro: 9, count: 2, mode: "sync", dropout: 0.2,
		options: Options{CapBytes: 1024, FirstBytes: 256}, open: openCPU(t)}
	ranks := j.ranks(t, 3)
	alone := j
	alone.options, alone.mode, alone.open = Options{}, "local", nil
	plain := alone.ranks(t, 1)
	alone.dtype = tensor.F64
	truth := alone.ranks(t, 1)
	r := rand.New(rand.NewPCG(8, 8))
	for step := range 6 {
		shares := []int{0, 0, 0}
		for range j.micro {
			shares[r.IntN(3)]++
		}
		run(t, ranks, step, shares)
		run(t, plain, step, []int{j.micro})
		run(t, truth, step, []int{j.micro})
	}
	compare(t, ranks, plain[0], truth[0])
}

// The devices of the ranks have different private layouts. After every step, the states of all ranks must be bit-equal.
func TestRanksOnUnlikeDevicesTrainOneModel(t *testing.T) {
	fast := openCPU(t)
	j := job{dtype: tensor.F32, micro: 8, count: 1, mode: "sync",
		options: Options{CapBytes: 1024, FirstBytes: 256, Wire: tensor.BF16}}
	j.open = func(rank int) device.Device {
		if rank == 1 {
			return reference.New()
		}
		return fast(rank)
	}
	for _, plain := range []bool{false, true} {
		j.plain = plain
		ranks := j.ranks(t, 3)
		for i, err := range each(ranks, func(r *rank) error {
			same, err := SameLayouts(context.Background(), r.grads, r.dev, r.state.Params)
			if err == nil && same != plain {
				t.Errorf("rank %d, plain %t: layouts are the same: got %t", r.number, plain, same)
			}
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", i, err)
			}
		}
		if !plain {
			continue
		}
		for step := range 3 {
			run(t, ranks, step, []int{3, 5, 0})
			for _, r := range ranks {
				r.update(0.1)
			}
			for _, r := range ranks[1:] {
				if !bytes.Equal(r.sum.Host(), ranks[0].sum.Host()) ||
					!bytes.Equal(r.state.Values.Host(), ranks[0].state.Values.Host()) {
					t.Fatalf("step %d: rank %d holds other gradients or parameters than rank 0", step, r.number)
				}
			}
		}
	}
}

// The test counts the allocations of Enqueue, Forward, Backward and Finish. It does not count those of the first steps.
func TestStepAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	j := job{dtype: tensor.F32, micro: 6, count: 1, mode: "sync", options: Options{CapBytes: 1024, FirstBytes: 256},
		open: openCPU(t)}
	ranks := j.ranks(t, 2)
	run(t, ranks, 0, []int{3, 3})
	measured := ranks[0]
	rounds := make(chan bool)
	failed := make(chan error, 1)
	go func() { // the other rank also performs every step
		r := ranks[1]
		for range rounds {
			if err := r.again(); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	var err error
	got := math.Inf(1)
	for range 5 { // on a busy machine, other goroutines of the test binary may allocate at the same time
		got = min(got, testing.AllocsPerRun(20, func() {
			rounds <- true
			if e := measured.again(); e != nil {
				err = e
			}
		}))
	}
	close(rounds)
	if err := errors.Join(err, <-failed); err != nil {
		t.Fatal(err)
	}
	if got > 2 { // if Sync has to wait, it allocates a channel
		t.Errorf("a step allocates %g times, want at most once a rank", got)
	}
}

// again repeats the passes of the last step on the same inputs.
func (r *rank) again() error {
	p := r.passes[3]
	if err := p.Forward(r.stream); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := p.Backward(r.stream, true); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	_, err := r.sync.Finish(context.Background(), r.stream)
	return err
}
