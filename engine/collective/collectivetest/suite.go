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
	// patience is longer than anything here takes on a loaded machine.
	patience = 60 * time.Second
	// moment is long enough for a mistake to show, too short to matter if none was made.
	moment = 30 * time.Millisecond
	// promptly is how soon a failure must be known everywhere on a loaded machine, though no time-out is set.
	promptly = 10 * time.Second
)

// Group is a group under test.
type Group struct {
	Comms []collective.Communicator
	// Kill ends a rank as kill -9 would. Its communicator is still closed by the suite.
	Kill func(rank int)
	// Hosts, where not nil, are ranks whose values are reduced, and rounded, with each other first, and then one host after the other.
	Hosts [][]int
	// Unordered groups add real numbers in an order of their own, and may round at every step. They are held to the bits of sums that are the same in
	// every order, and to what some order can give of others.
	Unordered bool
	// Device, where not nil, opens the device of a rank, of which the group carries the memory; Host is that memory as the suite sees it,
	// nil: as the host does.
	Device func(rank int) device.Device
	Host   func(device.Region) []byte
}

// Opener makes a group of size ranks whose operations time out after limit (0: never). The suite closes the communicators.
type Opener func(t conformance.TB, size int, limit time.Duration) Group

// Options say what is known of an implementation, and how long it may take. Without them it has its ranks in this process and is quick.
type Options struct {
	// Sizes of the groups in which every value is checked; nil: 1, 2, 3, 4 and 7. Some checks want up to 4 ranks whatever it says.
	Sizes []int
	// Rounds of the checks that look for a race; 0: 20.
	Rounds int
	// Slower is how many times longer than a group of the host one may take for what is done within a time-out; 0: once.
	Slower int
	// Apart: the ranks are processes of their own, so that nobody sees from here what they allocate and who writes to their memory. Checks of
	// these are left out.
	Apart bool
}

// suite is what checks are run with.
type suite struct {
	open Opener
	Options
}

// limit is a time-out for an implementation as slow as this.
func (s suite) limit(quick time.Duration) time.Duration {
	return quick * time.Duration(max(s.Slower, 1))
}

// rounds is how often a race is looked for.
func (s suite) rounds() int {
	if s.Rounds > 0 {
		return s.Rounds
	}
	return 20
}

// Run checks an implementation.
func Run(t conformance.T, open Opener) { RunWith(t, open, Options{}) }

// RunWith checks one of which something is known.
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

// check is one promise.
type check struct {
	name string
	run  func(conformance.T, suite)
	near bool // wants the ranks in this process
}

// rig is a group with memory.
type rig struct {
	Group
	t    conformance.T
	size int
	devs []device.Device
}

// newRig closes its communicators when the test ends: that is an error where they have not failed.
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

// openDevices gives each rank one.
func (r *rig) openDevices() {
	for rank := range r.size {
		if r.Device != nil {
			r.devs = append(r.devs, r.Device(rank))
			continue
		}
		r.devs = append(r.devs, reference.New())
	}
}

// host is memory of a rank as the suite sees it.
func (r *rig) host(m device.Region) []byte {
	if r.Host != nil {
		return r.Host(m)
	}
	return m.Host()
}

// each runs f for every rank, in goroutines.
func (r *rig) each(f func(rank int)) {
	var wg sync.WaitGroup
	for rank := range r.size {
		wg.Go(func() { f(rank) })
	}
	wg.Wait()
}

// memory is a buffer of a rank that holds data.
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

// event of a rank.
func (r *rig) event(rank int) device.Event {
	r.t.Helper()
	e, err := r.devs[rank].NewEvent()
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// enqueue wants no error.
func (r *rig) enqueue(rank int, op collective.Op) {
	r.t.Helper()
	if err := r.Comms[rank].Enqueue(op); err != nil {
		r.t.Errorf("rank %d: enqueue: %v", rank, err)
	}
}

// sync waits for a rank and returns the communicator's error.
func (r *rig) sync(rank int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.Comms[rank].Sync(ctx)
}

// do runs one operation on all ranks and wants no error.
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

// sum is a small all-reduce of a rank.
func (r *rig) sum(rank int, name string) collective.Op {
	return collective.AllReduce{Name: name, Buffer: r.memory(rank, make([]byte, 4*5)), DType: tensor.F32}
}

// failure waits, for no longer than limit, until a rank's communicator has failed.
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
