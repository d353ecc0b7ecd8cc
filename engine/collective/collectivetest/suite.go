package collectivetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const (
	// patience is longer than the time that any check takes on a loaded machine.
	patience = 60 * time.Second
	// moment is long enough for a fault to become visible, but short enough that checks without faults remain fast.
	moment = 30 * time.Millisecond
	// promptly limits the time in which all ranks must detect a failure, on a loaded machine. It does not apply to
	// time-outs.
	promptly = 30 * time.Second
)

// Group is the group under test.
type Group struct {
	Comms []collective.Communicator
	// Kill ends a rank as kill -9 would. The suite still closes the rank's communicator.
	Kill func(rank int)
	// Hosts, if not nil, lists the ranks of each host. The group first reduces and rounds the values within each host.
	// It then reduces and rounds the results of the hosts, in order.
	Hosts [][]int
	// Unordered means that the group adds real numbers in an unspecified order and may round after every addition. The
	// suite then requires an exact sum only if all orders give bit-equal results. For other sums, it checks the
	// rounding error against a bound.
	Unordered bool
	// Device opens the device of a rank; nil: the suite uses reference devices. Host returns the content of device
	// memory that the host cannot access directly; nil: the host can access all memory.
	Device func(rank int) device.Device
	Host   func(device.Region) []byte
}

// Opener creates a group of size ranks. The parameter limit is the time limit of an operation (0: no limit). The suite
// closes the communicators.
type Opener func(t conformance.TB, size int, limit time.Duration) Group

// Options describe an implementation. The zero value describes a fast implementation whose ranks are in this process.
type Options struct {
	// Sizes are the group sizes for which every value is checked; nil: 1, 2, 3, 4 and 7. Some checks use up to 4 ranks
	// regardless of Sizes.
	Sizes []int
	// Rounds is the number of repetitions of checks for race conditions; 0: 20.
	Rounds int
	// Slower multiplies the time-outs of checks that must complete within a time-out; 0: 1.
	Slower int
	// Apart means that the ranks are separate processes. The suite then skips checks of the ranks' allocations and of
	// late writes to their memory.
	Apart bool
	// Allocations is the largest permitted number of allocations in a step of 6 operations, over all ranks. It is 0 for
	// implementations that do not encrypt.
	Allocations float64
}

// suite contains the input of a check.
type suite struct {
	open Opener
	Options
}

// limit returns a time-out, scaled by Options.Slower.
func (s suite) limit(quick time.Duration) time.Duration {
	return quick * time.Duration(max(s.Slower, 1))
}

// rounds returns the number of repetitions of a check for a race condition.
func (s suite) rounds() int {
	if s.Rounds > 0 {
		return s.Rounds
	}
	return 20
}

// Run checks an implementation with default options.
func Run(t conformance.T, open Opener) { RunWith(t, open, Options{}) }

// RunWith checks an implementation with options.
func RunWith(t conformance.T, open Opener, o Options) {
	s := suite{open, o}
	for _, c := range []struct {
		name   string
		checks []check
	}{
		{"values", valueChecks},
		{"order", orderChecks},
		{"faults", faultChecks},
	} {
		t.Run(c.name, func(t conformance.T) {
			for _, one := range c.checks {
				if !one.near || !s.Apart {
					t.Run(one.name, func(t conformance.T) { one.run(t, s) })
				}
			}
		})
	}
}

// check tests one requirement of the contract.
type check struct {
	name string
	run  func(conformance.T, suite)
	near bool // the check requires that the ranks are in this process
}

// rig is a group with the devices and memory of its ranks.
type rig struct {
	Group
	t    conformance.T
	size int
	devs []device.Device
}

// newRig creates a rig. When the test ends, the rig closes its communicators. An error of Close fails the test, unless
// the communicator had already failed.
func newRig(t conformance.T, s suite, size int, limit time.Duration) *rig {
	t.Helper()
	r := &rig{Group: s.open(t, size, limit), t: t, size: size}
	if len(r.Comms) != size {
		t.Fatalf("got %d communicators, want %d", len(r.Comms), size)
	}
	for rank, c := range r.Comms {
		if c.Rank() != rank || c.Size() != size {
			t.Fatalf("communicator %d: got rank %d of %d, want %d of %d", rank, c.Rank(), c.Size(), rank, size)
		}
	}
	r.openDevices()
	t.Cleanup(func() {
		r.each(func(rank int) {
			if err := r.Comms[rank].Close(); err != nil && r.Comms[rank].Err() == nil {
				t.Errorf("rank %d: close: %v", rank, err)
			}
		})
	})
	return r
}

// openDevices opens a device for each rank.
func (r *rig) openDevices() {
	for rank := range r.size {
		if r.Device != nil {
			r.devs = append(r.devs, r.Device(rank))
			continue
		}
		r.devs = append(r.devs, reference.New())
	}
}

// host returns the content of a region of a rank's memory.
func (r *rig) host(m device.Region) []byte {
	if r.Host != nil {
		return r.Host(m)
	}
	return m.Host()
}

// each runs f for all ranks, each in a goroutine.
func (r *rig) each(f func(rank int)) {
	var wg sync.WaitGroup
	for rank := range r.size {
		wg.Go(func() { f(rank) })
	}
	wg.Wait()
}

// memory returns a buffer of a rank, filled with data.
func (r *rig) memory(rank int, data []byte) device.Region {
	r.t.Helper()
	b, err := r.devs[rank].Alloc(int64(len(data)))
	if err != nil {
		r.t.Fatal(err)
	}
	m := device.Whole(b)
	copy(r.host(m), data)
	return m
}

// event returns an event on a rank's device.
func (r *rig) event(rank int) device.Event {
	r.t.Helper()
	e, err := r.devs[rank].NewEvent()
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// enqueue fails the test if Enqueue returns an error.
func (r *rig) enqueue(rank int, op collective.Op) {
	r.t.Helper()
	if err := r.Comms[rank].Enqueue(op); err != nil {
		r.t.Errorf("rank %d: enqueue: %v", rank, err)
	}
}

// sync waits for a rank's communicator and returns its error.
func (r *rig) sync(rank int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.Comms[rank].Sync(ctx)
}

// syncAll waits until all ranks have completed their operations without an error.
func (r *rig) syncAll() {
	r.t.Helper()
	r.each(func(rank int) {
		if err := r.sync(rank); err != nil {
			r.t.Errorf("rank %d: %v", rank, err)
		}
	})
}

// do runs one operation on all ranks, and fails the test on an error.
func (r *rig) do(op func(rank int) collective.Op) {
	r.t.Helper()
	r.each(func(rank int) {
		r.enqueue(rank, op(rank))
		if err := r.sync(rank); err != nil {
			r.t.Errorf("rank %d: %v", rank, err)
		}
	})
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// sum returns a small all-reduce for a rank.
func (r *rig) sum(rank int, name string) collective.Op {
	return collective.AllReduce{Name: name, Buffer: r.memory(rank, make([]byte, 4*5)), DType: tensor.F32}
}

// failure waits until a rank's communicator has failed, but at most for the time limit, and returns the failure.
func (r *rig) failure(rank int, limit time.Duration) error {
	for start := time.Now(); time.Since(start) < limit; time.Sleep(time.Millisecond) {
		if err := r.Comms[rank].Err(); err != nil {
			return err
		}
	}
	return nil
}

// flag is an event that allocates nothing.
type flag struct{ done atomic.Bool }

func (f *flag) Done() bool      { return f.done.Load() }
func (f *flag) Reset() error    { f.done.Store(false); return nil }
func (f *flag) Complete() error { f.done.Store(true); return nil }
func (f *flag) Close() error    { return nil }
func (f *flag) WaitHost(limit time.Duration) error {
	for start := time.Now(); !f.Done(); time.Sleep(10 * time.Microsecond) {
		if time.Since(start) > limit {
			return fmt.Errorf("flag: %w", os.ErrDeadlineExceeded)
		}
	}
	return nil
}
