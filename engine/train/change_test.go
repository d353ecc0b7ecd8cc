package train

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// gated is a device. It blocks while it compiles for batches of a certain size, until the test closes open.
type gated struct {
	device.Device
	mu      sync.Mutex
	samples int // batch size for which compilation blocks; 0: none
	open    chan struct{}
	err     error // error that a blocked compilation returns, instead of a kernel; may be nil
}

func newGated(t *testing.T) *gated {
	return &gated{Device: openReference(t), open: make(chan struct{})}
}

// release opens the gate. Further calls have no effect.
func (g *gated) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// hold blocks compilation for batches of this many samples.
func (g *gated) hold(samples int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.samples = samples
}

func (g *gated) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	g.mu.Lock()
	held, err := g.samples > 0 && len(in) > 0 && len(in[0].Shape) > 0 && in[0].Shape[0] == g.samples, g.err
	g.mu.Unlock()
	if held {
		<-g.open
		if err != nil {
			return nil, err
		}
	}
	return g.Device.Compile(op, in, out)
}

// once is a Splitter. From step from on, it returns the same shares at every step.
type once struct {
	from   int64
	shares []int
}

func (o once) Split(step int64, _ []RankStep, _ bool) []int {
	if step < o.from {
		return nil
	}
	return o.shares
}

// cachePlans waits until the plan cache of a replica has plans for n samples. If necessary, it compiles them.
func cachePlans(r *replica.Replica, n int) error {
	return prepare(r, slices.Repeat([]int{n}, len(r.Shares().All())))
}

// prepare waits until a replica has its plans for the given shares of all ranks.
func prepare(r *replica.Replica, samples []int) error {
	plans := r.Prepare(samples)
	for {
		ready, err := plans.Ready()
		if err != nil {
			return err
		}
		if ready {
			plans.Release()
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// changes returns the steps at which the shares changed, and the shares of every step.
func changes(t *testing.T, s session) (at []int64, shares [][]int) {
	t.Helper()
	for i, step := range s.steps {
		if i > 0 && step.Changed == slices.Equal(step.Shares, s.steps[i-1].Shares) {
			t.Errorf("step %d: changed is %t, its shares are %v, those before %v", step.Step, step.Changed, step.Shares,
				s.steps[i-1].Shares)
		}
		if step.Changed {
			at = append(at, step.Step)
		}
		for rank, r := range step.Ranks {
			if r.Samples != step.Shares[rank] {
				t.Errorf("step %d: rank %d had %d samples, shares are %v", step.Step, rank, r.Samples, step.Shares)
			}
		}
		shares = append(shares, step.Shares)
	}
	return at, shares
}

func TestSharesChangeWhenTheSlowestRankHasPlanned(t *testing.T) {
	devices := []*gated{newGated(t), newGated(t)}
	c := crew{openRank: func(rank int) device.Device { return devices[rank] }, options: testOptions(),
		shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			to := []int{1, 5}
			o.Splitter = once{2, to}
			if rank == 1 {
				devices[1].hold(to[1])
			}
			rec.after = func(step int64) {
				if step == 6 { // an epoch and its evaluation have ended
					if rank == 1 {
						close(devices[1].open)
					}
					cachePlans(o.Replica, to[rank])
				}
			}
		}}
	ranks := c.start(t)
	follows(t, alone(t, c.options, openReference), ranks)
	for rank, s := range ranks {
		if at, shares := changes(t, s); !slices.Equal(at, []int64{8}) { // all plans are ready after step 7
			t.Errorf("rank %d: changed at steps %v, want at step 8 alone; shares %v", rank, at, shares)
		}
	}
}

// The plans for the smaller last step of an epoch must also compile in the background. The shares must not change until
// every rank has them.
func TestSharesChangeWhenTheLastStepIsPlanned(t *testing.T) {
	devices := []*gated{newGated(t), newGated(t)}
	to, o := []int{1, 9}, lastOptions(testOptions(), 10, 1) // the last step has 6 samples: 6 and 0, then 1 and 5
	c := crew{openRank: func(rank int) device.Device { return devices[rank] }, options: o, shares: []int{8, 2},
		sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			o.Splitter = once{1, to}
			if rank == 1 {
				devices[1].hold(5)
				time.AfterFunc(time.Minute, func() { devices[1].release() }) // steps that compile them wait until then
			}
			rec.after = func(step int64) {
				if step == 4 { // the first epoch has ended
					devices[1].release()
					prepare(o.Replica, to)
				}
			}
		}}
	ranks := c.start(t)
	follows(t, alone(t, o, openReference), ranks)
	for rank, s := range ranks {
		var at []int64
		for _, step := range s.steps {
			if step.Changed {
				at = append(at, step.Step)
			}
		}
		if len(at) != 1 || at[0] < 5 {
			t.Errorf("rank %d: changed at steps %v, want once, after step 4", rank, at)
		}
	}
}

func TestPlannedSharesChangeAtEveryOtherStep(t *testing.T) {
	for _, c := range []struct {
		name         string
		accumulation int
		shares       [][]int
	}{
		{"one micro-batch", 1, [][]int{{2, 2, 2}, {6, 0, 0}, {0, 1, 5}, {1, 2, 3}}},
		{"two micro-batches", 2, [][]int{{1, 1, 1}, {3, 0, 0}, {0, 1, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.Accumulation = c.accumulation
			cr := crew{open: openReference, options: o, shares: c.shares[0], sync: true, cap: 200, dir: t.TempDir(),
				splitter: rotating{c.shares},
				change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
					for n := range o.Replica.Options().MicroBatch() + 1 {
						if err := cachePlans(o.Replica, n); err != nil {
							t.Error(err)
						}
					}
				}}
			ranks := cr.start(t)
			follows(t, alone(t, o, openReference), ranks)
			for rank, s := range ranks {
				for i := range s.steps { // shares are those of each micro-batch
					for r := range s.steps[i].Ranks {
						s.steps[i].Ranks[r].Samples /= c.accumulation
					}
				}
				if at, _ := changes(t, s); len(at) < testSteps/3 {
					t.Errorf("rank %d: changed at steps %v of %d, want more often", rank, at, testSteps)
				}
			}
		})
	}
}

// TestStepsOfRanksAllocateNothing counts the heap allocations of all ranks, without those of observers.
func TestStepsOfRanksAllocateNothing(t *testing.T) {
	if addressSanitizer {
		t.Skip("the address sanitizer allocates on the Go heap")
	}
	const early, late, last, size = 20, 120, 125, 2 // at the end, the ranks compare their states, which allocates
	var before, after runtime.MemStats
	o := testOptions()
	use(&o, simplecnn.Build(simplecnn.Options{Channels: []int{16, 32}}))
	for rank, s := range (crew{open: openCPU, options: o, shares: []int{4, 2}, sync: true, dir: t.TempDir(),
		splitter: once{last, nil},
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			o.Eval, o.CompareSteps, o.Steps, o.Observer = nil, 0, last, silent{func(step int64) {
				switch {
				case rank == 0 && step == early:
					runtime.ReadMemStats(&before)
				case rank == 0 && step == late:
					runtime.ReadMemStats(&after)
				}
			}}
		}}.start(t)) {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
	}
	// Some allocations are expected. A Sync that has to wait makes a channel, and the loaders shuffle each epoch of
	// four steps. The Go runtime also allocates.
	t.Logf("%d heap allocations in %d steps of %d ranks", after.Mallocs-before.Mallocs, late-early, size)
	if n := after.Mallocs - before.Mallocs; n > (late-early)*size*3/2 {
		t.Errorf("got %d heap allocations in %d steps of %d ranks, want at most one of each rank", n, late-early, size)
	}
}

func TestFewPlansAreKept(t *testing.T) {
	options := testOptions()
	options.CachedPlans = 2
	c := crew{open: openReference, options: options, shares: []int{2, 2, 2}, sync: true, cap: 200, dir: t.TempDir(),
		splitter: rotating{[][]int{{1, 2, 3}, {6, 0, 0}, {0, 1, 5}, {2, 2, 2}}}}
	follows(t, alone(t, c.options, openReference), c.start(t))
}

func TestARankThatCannotPlanEndsTheRun(t *testing.T) {
	broken := errors.New("no such kernel today")
	devices := []*gated{newGated(t), newGated(t)}
	ranks := crew{openRank: func(rank int) device.Device { return devices[rank] }, options: testOptions(),
		shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			o.Splitter, o.Steps = once{2, []int{1, 5}}, 1e6
			if rank == 1 {
				devices[1].err = broken
				devices[1].hold(5)
				close(devices[1].open)
			}
		}}.start(t)
	const want = "prepare shares [1 5]: plan rank 1 for 5 samples: "
	var peer *collective.PeerError
	if err := ranks[1].err; !errors.Is(err, broken) || !strings.Contains(err.Error(), want) {
		t.Errorf("rank 1: got %v, want %q and its cause", err, want)
	}
	if err := ranks[0].err; !errors.As(err, &peer) || peer.Rank != 1 || !strings.Contains(err.Error(), want) {
		t.Errorf("rank 0: got %v, want rank 1 and %q", err, want)
	}
}

// TestAChangeThatIsUnderWayHoldsUpNothing stops a run or rolls it back, while the shares are about to change.
func TestAChangeThatIsUnderWayHoldsUpNothing(t *testing.T) {
	for name, ends := range map[string]func(rank int, cancel context.CancelFunc, o *Options, step int64){
		"a stop": func(rank int, cancel context.CancelFunc, _ *Options, step int64) {
			if rank == 0 && step == 5 {
				cancel()
			}
		},
		"a roll-back": func(rank int, _ context.CancelFunc, o *Options, step int64) {
			if rank == 0 && step == 4 {
				poison(t, o.Replica)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			devices := []*gated{newGated(t), newGated(t)}
			ranks := crew{openRank: func(rank int) device.Device { return devices[rank] }, options: testOptions(),
				shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir(),
				change: func(rank int, cancel context.CancelFunc, o *Options, rec *recorder) {
					o.Splitter, o.SaveSteps, o.Eval = once{2, []int{1, 5}}, 1, nil
					if rank == 1 {
						devices[1].hold(5)
					}
					rec.after = func(step int64) { ends(rank, cancel, o, step) }
					rec.over = func() {
						if rank == 1 {
							close(devices[1].open)
						}
					}
				}}.start(t)
			for rank, s := range ranks {
				if at, _ := changes(t, s); len(at) > 0 {
					t.Errorf("rank %d: changed at steps %v, want never", rank, at)
				}
				if stopped := s.err == nil && s.result.Interrupted && s.result.Steps == 6; name == "a stop" &&
					!stopped {
					t.Errorf("rank %d: got %v, %+v, want an interruption after step 6", rank, s.err, s.result)
				}
				if back := errors.Is(s.err, ErrDiverged) &&
					slices.Equal(s.rolledBackTo, []int64{4}); name == "a roll-back" && !back {
					t.Errorf("rank %d: got %v after going back to %v, want ErrDiverged after one to step 4", rank,
						s.err, s.rolledBackTo)
				}
			}
		})
	}
}

func TestSplittersThatDisagreeEndTheRun(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			o.Splitter = once{2, []int{3 + rank, 3 - rank}} // for rank 1, these are the present shares
		}}
	for rank, s := range c.start(t) {
		if s.err == nil || !strings.Contains(s.err.Error(), "rank 1 and rank 0 computed different shares") {
			t.Errorf("rank %d: got %v, want an error that names the ranks", rank, s.err)
		}
	}
}

// A profile times several shares with one replica. Each step must compute the number of samples that is set, and must
// take them from the loader that it gets.
func TestARankAloneChangesItsSamples(t *testing.T) {
	for name, open := range map[string]func(*testing.T) device.Device{
		"reference":         func(*testing.T) device.Device { return reference.New() },
		"behind the caller": openBehind,
	} {
		t.Run(name, func(t *testing.T) {
			with := func(samples int) (*replica.Replica, replica.Options) {
				o := testOptions()
				o.BatchSize = samples
				// dropout depends on the step, so the test omits it
				classify(&o, func(c *images.Classify) {
					c.Model = simplecnn.Build(simplecnn.Options{Channels: []int{3, 4}})
				})
				r, err := replica.New(open(t), o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.Close() })
				return r, o
			}
			step := func(r *replica.Replica, o replica.Options) replica.StepResult {
				out, err := r.Step(context.Background(), testLoader(t, o, false), replica.StepOptions{Rate: 0})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			r, o := with(8)
			for _, n := range []int{8, 4, 8} {
				if err := r.SetSamples(n); err != nil {
					t.Fatal(err)
				}
				o.BatchSize = n
				got, want := step(r, o), step(with(n))
				if got.Count != n || math.Abs(got.Loss-want.Loss) > 1e-5*math.Abs(want.Loss) {
					t.Errorf("%d samples: got %d samples with a loss of %v, want %v", n, got.Count, got.Loss, want.Loss)
				}
			}
			for _, n := range []int{0, 9} {
				if err := r.SetSamples(n); err == nil || !strings.Contains(err.Error(), "want 1 to 8") {
					t.Errorf("%d samples: got %v, want an error with the limits", n, err)
				}
			}
		})
	}
}
