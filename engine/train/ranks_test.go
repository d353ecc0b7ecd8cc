package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// crew describes a run of several ranks of this process.
type crew struct {
	open     func(*testing.T) device.Device
	openRank func(rank int) device.Device // if not nil, replaces open
	options  replica.Options
	types    []tensor.DType // compute type of each rank; nil: options.Compute for all ranks
	shares   []int
	sync     bool
	splitter Splitter
	dir      string // folder of the checkpoints
	cap      int64  // largest size of a bucket in bytes

	sequential bool
	listen     func(rank int, grads collective.Communicator) collective.Communicator // replaces grads; may be nil
	peers      func(rank int, p *replica.Peers)                                      // changes Peers; may be nil
	change     func(rank int, ctx context.CancelFunc, o *Options, rec *recorder)
}

// start trains with one goroutine for each rank. It returns the session of each rank.
func (c crew) start(t *testing.T) []session {
	t.Helper()
	size := len(c.shares)
	grads, stats := localGroup(t, size), localGroup(t, size)
	out := make([]session, size)
	var ranks sync.WaitGroup
	for rank := range size {
		to := grads[rank]
		if c.listen != nil {
			to = c.listen(rank, to)
		}
		ranks.Go(func() { out[rank] = c.rank(t, rank, to, stats[rank]) })
	}
	ranks.Wait()
	return out
}

// startRanks trains with 1 to 3 ranks, which have unequal shares. It returns the session of each rank. change changes
// the options of a rank.
func startRanks(t *testing.T, ranks int, change func(rank int, o *Options, rec *recorder)) []session {
	t.Helper()
	if ranks == 1 {
		rec := &recorder{}
		return []session{start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), rec,
			func(o *Options) { change(0, o, rec) })}
	}
	c := crew{open: openReference, options: testOptions(), sync: true, dir: t.TempDir(),
		shares: [][]int{2: {4, 2}, 3: {3, 2, 1}}[ranks]}
	c.change = func(rank int, _ context.CancelFunc, o *Options, rec *recorder) { change(rank, o, rec) }
	return c.start(t)
}

// localGroup returns communicators that connect size ranks of this process.
func localGroup(t *testing.T, size int) []collective.Communicator {
	t.Helper()
	group, err := local.New(size, local.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return collectivetest.GroupOf(group, nil).Comms
}

func (c crew) rank(t *testing.T, rank int, grads, stats collective.Communicator) (s session) {
	defer grads.Close()
	defer stats.Close()
	s.recorder = &recorder{}
	fail := func(err error) session {
		grads.Abort(err)
		stats.Abort(err)
		s.err = err
		return s
	}
	var dev device.Device
	if c.openRank != nil {
		dev = c.openRank(rank)
	} else {
		dev = c.open(t)
	}
	defer dev.Close()
	o := c.options
	if c.types != nil {
		o.Compute, o.LossScale = c.types[rank], slices.Contains(c.types, tensor.F16)
	}
	o.Peers = &replica.Peers{Group: &gradsync.Group{Grads: grads, Stats: stats}, Shares: c.shares, SyncNorm: c.sync,
		MaxShare: o.MicroBatch(), CapBytes: c.cap, Sequential: c.sequential}
	if c.peers != nil {
		c.peers(rank, o.Peers)
	}
	r, err := replica.New(dev, o)
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opts := Options{Replica: r, Train: shareLoader(t, o, r.Shares(), false), Eval: shareLoader(t, o, r.Shares(), true),
		Observer: s.recorder, Splitter: c.splitter,
		Schedule: testSchedule(), Steps: testSteps, EvalInterval: 1, EvalAverage: true, KeepBest: true, CompareSteps: 1,
		NaNPatience: 2, NaNRollbacks: 1}
	if rank == 0 {
		if opts.Store, err = checkpoint.Open(c.dir, checkpoint.Options{Keep: 2}); err != nil {
			return fail(err)
		}
		defer opts.Store.Close()
		if found, _, err := checkpoint.Latest(c.dir); err == nil {
			if err := r.Load(found); err != nil {
				return fail(err)
			}
			opts.Resume = &found.State
			found.Close()
		}
	}
	if c.change != nil {
		c.change(rank, cancel, &opts, s.recorder)
	}
	if allocated, _ := dev.Memory(); r.PredictedBytes() != allocated {
		return fail(fmt.Errorf("predicted %d bytes, the device gave out %d", r.PredictedBytes(), allocated))
	}
	if c.splitter != nil { // other plans compile while the rank trains
		go cachePlans(r, 3)
	}
	s.replica = r
	s.result, s.err = Run(ctx, opts)
	if s.recorder.over != nil {
		s.recorder.over()
	}
	return s
}

// rotating is a Splitter. At every step it returns other shares, some of which are 0.
type rotating struct{ shares [][]int }

func (r rotating) Split(step int64, _ []RankStep, _ bool) []int {
	return r.shares[int(step)%len(r.shares)]
}

func alone(t *testing.T, o replica.Options, open func(*testing.T) device.Device) session {
	t.Helper()
	s := start(context.Background(), t, open(t), t.TempDir(), o, &recorder{}, nil)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s
}

// ranksTolerance permits the differences of 11 steps with f32 sums in another order. A wrong sum or statistic would
// change results by 1e-2.
const ranksTolerance = 2e-5

// follows compares losses, norms and evaluations of the ranks with those of a single rank.
func follows(t *testing.T, one session, ranks []session) {
	t.Helper()
	for rank, s := range ranks {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
		if len(s.losses) != len(one.losses) || len(s.evals) != len(one.evals) {
			t.Fatalf("rank %d: got %d steps and %d evaluations, want %d and %d", rank, len(s.losses), len(s.evals),
				len(one.losses), len(one.evals))
		}
		for i := range s.losses {
			if d := math.Abs(s.losses[i] - one.losses[i]); !(d <= ranksTolerance*one.losses[i]) {
				t.Errorf("rank %d, step %d: loss %.8g, one rank has %.8g", rank, i+1, s.losses[i], one.losses[i])
			}
			if d := math.Abs(s.norms[i] - one.norms[i]); !(d <= 10*ranksTolerance*one.norms[i]) {
				t.Errorf("rank %d, step %d: norm %.8g, one rank has %.8g", rank, i+1, s.norms[i], one.norms[i])
			}
		}
		for i, e := range s.evals {
			if want := one.evals[i]; e.Samples != want.Samples ||
				math.Abs(e.Loss-want.Loss) > 10*ranksTolerance*want.Loss {
				t.Errorf("rank %d: evaluation %+v, one rank has %+v", rank, e, want)
			}
		}
		if !slices.Equal(s.losses, ranks[0].losses) || !slices.Equal(s.norms, ranks[0].norms) {
			t.Errorf("rank %d saw other losses than rank 0", rank)
		}
	}
}

// follows trains the ranks on the reference device and on the CPU, and compares them with a single rank. check compares
// further figures.
func (c crew) follows(t *testing.T, name string, check func(t *testing.T, one session, ranks []session)) {
	for kind, open := range map[string]func(*testing.T) device.Device{"reference": openReference, "cpu": openCPU} {
		t.Run(name+" "+kind, func(t *testing.T) {
			crew := c
			crew.open, crew.dir = open, t.TempDir()
			one, ranks := alone(t, crew.options, open), crew.start(t)
			follows(t, one, ranks)
			check(t, one, ranks)
		})
	}
}

// trainsAsOneRank trains a task on the reference device and on the CPU. It compares ranks with unequal shares with a
// single rank. options returns the options of the task, with the given dropout. check compares further figures.
func trainsAsOneRank(t *testing.T, options func(dropout float64) replica.Options,
	check func(t *testing.T, one session, ranks []session)) {
	accumulated := options(0)
	accumulated.Accumulation = 2
	for _, c := range []struct {
		name string
		crew crew
	}{
		{"two ranks", crew{options: options(0), shares: []int{5, 1}, cap: 200}},
		{"three ranks, one without samples, dropout", crew{options: options(0.2), shares: []int{0, 4, 2}, cap: 200}},
		{"micro-batches", crew{options: accumulated, shares: []int{1, 2}, cap: 200}},
		{"shares that change at every step", crew{options: options(0.2), shares: []int{2, 2, 2},
			splitter: rotating{[][]int{{1, 2, 3}, {6, 0, 0}, {0, 1, 5}}}}},
	} {
		c.crew.follows(t, c.name, check)
	}
}

// oneBlock is a network with one residual block. For half of the samples, the branch of the block is dropped.
func oneBlock(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	x = net.BatchNorm("bn1", net.Conv2D("conv1", x, nn.Conv{Out: 4, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
	y := net.BatchNorm("bn2", net.Conv2D("conv2", x, nn.Conv{Out: 4, Kernel: 3, Padding: 1}), nn.Norm{})
	x = net.Graph.Binary("add", graph.Add, net.StochasticDepth("drop", y, 0.5), x)
	return net.Logits("fc", net.GlobalAvgPool("pool", net.Graph.Unary("relu", graph.ReLU, x)), classes)
}

func TestUnequalSharesTrainAsOneRank(t *testing.T) {
	plain := testOptions()
	accumulated := testOptions()
	accumulated.Accumulation = 2
	ghost := testOptions()
	ghost.GhostGroup = 2
	mixed := testOptions()
	mix(&mixed)
	labels := testOptions()
	several(&labels)
	mixedLabels := testOptions()
	several(&mixedLabels)
	mix(&mixedLabels)
	dropping := testOptions()
	use(&dropping, oneBlock)
	for _, c := range []struct {
		name string
		crew crew
	}{
		{"two ranks", crew{options: plain, shares: []int{4, 2}, sync: true, cap: 200}},
		{"buckets by measurement", crew{options: plain, shares: []int{0, 4, 2}, sync: true}},
		{"three ranks, one without samples", crew{options: plain, shares: []int{0, 5, 1}, sync: true, cap: 200}},
		{"micro-batches", crew{options: accumulated, shares: []int{2, 1}, sync: true, cap: 200}},
		{"frozen layers", crew{options: frozenOptions(), shares: []int{3, 1, 2}, sync: true, cap: 200}},
		{"averaged weights", crew{options: averagedOptions(1), shares: []int{3, 1, 2}, sync: true, cap: 200}},
		{"branches dropped by sample", crew{options: dropping, shares: []int{2, 4}, sync: true,
			splitter: rotating{[][]int{{1, 5}, {6, 0}, {3, 3}}}}},
		{"several labels per image", crew{options: labels, shares: []int{0, 5, 1}, sync: true, cap: 200}},
		{"several labels per mixed image", crew{options: mixedLabels, shares: []int{3, 2, 1}, sync: true}},
		{"groups", crew{options: ghost, shares: []int{4, 0, 2}}},
		{"mixed samples, partners on other ranks", crew{options: mixed, shares: []int{3, 2, 1}, sync: true,
			splitter: rotating{[][]int{{1, 2, 3}, {5, 0, 1}, {2, 2, 2}}}}},
		{"shares that change at every step", crew{options: plain, shares: []int{2, 2, 2}, sync: true,
			splitter: rotating{[][]int{{1, 2, 3}, {6, 0, 0}, {0, 1, 5}, nil, {2, 2, 2}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.crew.open, c.crew.dir = openReference, t.TempDir()
			follows(t, alone(t, c.crew.options, openReference), c.crew.start(t))
		})
	}
	t.Run("cpu", func(t *testing.T) {
		o := testOptions()
		use(&o, simplecnn.Build(simplecnn.Options{Channels: []int{16, 32}, Dropout: 0.2}))
		c := crew{open: openCPU, options: o, shares: []int{2, 2, 2}, sync: true, dir: t.TempDir(),
			splitter: rotating{[][]int{{1, 2, 3}, {0, 1, 5}}}}
		follows(t, alone(t, o, openCPU), c.start(t))
	})
}

func TestRanksStopTogetherAndGoOnWithAnotherSplit(t *testing.T) {
	dir := t.TempDir()
	whole := alone(t, testOptions(), openReference)
	first := crew{open: openReference, options: testOptions(), shares: []int{3, 3}, sync: true, dir: dir,
		change: func(rank int, cancel context.CancelFunc, _ *Options, rec *recorder) {
			rec.after = func(step int64) {
				if rank == 1 && step == 5 {
					cancel() // the other rank learns this from the reports of the next step
				}
			}
		}}.start(t)
	for rank, s := range first {
		if s.err != nil || !s.result.Interrupted || s.result.Steps != 6 {
			t.Fatalf("rank %d: %v, %+v, want an interruption after step 6", rank, s.err, s.result)
		}
	}
	second := crew{open: openReference, options: testOptions(), shares: []int{1, 0, 5}, sync: true, dir: dir}.start(t)
	for rank, s := range second {
		if s.err != nil || s.result.Steps != testSteps || s.result.SamplesSeen != testSteps*testBatch {
			t.Fatalf("rank %d: %v, %+v", rank, s.err, s.result)
		}
		for i, loss := range s.losses {
			if want := whole.losses[6+i]; !(math.Abs(loss-want) <= ranksTolerance*want) {
				t.Errorf("rank %d, step %d: loss %.8g, one rank that never stopped has %.8g", rank, 7+i, loss, want)
			}
		}
	}
}

func TestAFailingRankEndsTheOthersWithItsCause(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{2, 2, 2}, sync: true, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			if rank == 1 {
				o.Train.Close() // rank 1 can then not read its data
			}
		}}
	for rank, s := range c.start(t) {
		var peer *collective.PeerError
		switch {
		case rank == 1 && !errors.Is(s.err, data.ErrClosed):
			t.Errorf("rank 1: got %v, want its own error", s.err)
		case rank != 1 &&
			(!errors.As(s.err, &peer) || peer.Rank != 1 || !strings.Contains(s.err.Error(), data.ErrClosed.Error())):
			t.Errorf("rank %d: got %v, want rank 1 and its cause", rank, s.err)
		}
	}
}

func TestRanksRollBackTogether(t *testing.T) {
	timed := [2]int{} // for each rank, number of steps whose times were known
	c := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			o.SaveSteps, o.Eval = 1, nil
			o.Timed = func([]replica.StepTimes) { timed[rank] = len(rec.steps) }
			rec.after = func(step int64) {
				if rank == 1 && step == 4 && len(rec.rolledBackTo) == 0 {
					poison(t, o.Replica) // from here on, the gradients of this rank are NaN
				}
			}
		}}
	for rank, s := range c.start(t) {
		if !errors.Is(s.err, ErrDiverged) || s.result.RollBacks != 1 || !slices.Equal(s.rolledBackTo, []int64{4}) {
			t.Errorf("rank %d: got %v, %d roll-backs to %v, want one to step 4 and ErrDiverged", rank, s.err,
				s.result.RollBacks, s.rolledBackTo)
		}
		if timed[rank] != len(s.steps) {
			t.Errorf("rank %d: the times of %d of %d steps were known", rank, timed[rank], len(s.steps))
		}
	}
}

// In TestAllRanksSkipTheStepOfOneBadGradient, the gradient of one of three ranks is not finite in one step, or in 30
// steps with HETERO_HOSTILE=1. All ranks must skip these steps, and the run must continue.
func TestAllRanksSkipTheStepOfOneBadGradient(t *testing.T) {
	steps := []int64{4}
	if needtest.Hostile.On() {
		steps = []int64{2, 4, 7, 9, testSteps - 1}
	}
	for value, fill := range map[string]func([]byte){"NaN": fillNaN, "Inf": fillInf} {
		for bad := range 3 {
			for _, at := range steps {
				c := crew{open: openReference, options: testOptions(), shares: []int{2, 1, 3}, sync: true,
					dir: t.TempDir(),
					change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
						o.Eval, o.CompareSteps = nil, 1
						heal := func() {}
						rec.after = func(step int64) {
							switch {
							case rank == bad && step == at-1:
								heal = poisonWith(t, o.Replica, fill)
							case step == at:
								heal()
							}
						}
					}}
				for rank, s := range c.start(t) {
					if s.err != nil || s.result.Skipped != 1 || s.result.RollBacks != 0 || s.result.Steps != testSteps {
						t.Errorf("%s on rank %d in step %d: rank %d: %v, %+v, want one step skipped", value, bad, at,
							rank, s.err, s.result)
						continue
					}
					for _, record := range s.steps {
						if record.Updated == (record.Step == at) {
							t.Errorf("%s on rank %d in step %d: rank %d: step %d: updated %v", value, bad, at, rank,
								record.Step, record.Updated)
						}
					}
					if loss := s.losses[len(s.losses)-1]; math.IsNaN(loss) || math.IsInf(loss, 0) {
						t.Errorf("%s on rank %d in step %d: rank %d ends with loss %v", value, bad, at, rank, loss)
					}
				}
			}
		}
	}
}
