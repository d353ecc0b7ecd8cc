package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// noisy is a communicator. In one of its operations, it flips a bit of the data that this rank receives, as a faulty
// network or memory does.
type noisy struct {
	collective.Communicator
	random  *rand.Rand
	left    *int // number of operations with data before the flip; negative after it
	running []device.Region
}

func (n *noisy) Enqueue(op collective.Op) error {
	switch op := op.(type) {
	case collective.AllReduce:
		n.running = append(n.running, op.Buffer)
	case collective.Broadcast:
		if op.Name == "weights" {
			n.running = append(n.running, op.Buffer)
		}
	}
	return n.Communicator.Enqueue(op)
}

func (n *noisy) Sync(ctx context.Context) error {
	err := n.Communicator.Sync(ctx)
	for _, region := range n.running {
		if *n.left--; *n.left == 0 && err == nil {
			flipIn(region, n.random)
		}
	}
	n.running = n.running[:0]
	return err
}

// flipIn flips a random bit of device memory that the host can access.
func flipIn(r device.Region, random *rand.Rand) {
	mem := r.Host()
	mem[random.IntN(len(mem))] ^= 1 << random.IntN(8)
}

// memories are the kinds of memory in which a bit flips. Padding is not included, because no checkpoint contains it.
var memories = map[string]func(r *replica.Replica) device.Region{
	"parameters": func(r *replica.Replica) device.Region { return dense(r, r.State().Values) },
	"moments":    func(r *replica.Replica) device.Region { return dense(r, r.Optimizer().Moments()[0].Flat) },
	"averages":   func(r *replica.Replica) device.Region { return dense(r, r.Averages().Values().Buffer) },
	"averaged statistics": func(r *replica.Replica) device.Region {
		p := r.State().Params.States[0]
		return device.Region{Buffer: r.Averages().States().Buffer, Offset: p.Offset, Bytes: p.Spec.Size()}
	},
	"running statistics": func(r *replica.Replica) device.Region {
		p := r.State().Params.States[0]
		return device.Region{Buffer: r.State().States, Offset: p.Offset, Bytes: p.Spec.Size()}
	},
	"gradients": func(r *replica.Replica) device.Region { return dense(r, r.State().Grads) },
}

// dense returns the region of the first parameter in a flat buffer.
func dense(r *replica.Replica, flat device.Buffer) device.Region {
	p := r.State().Params.Params[0]
	return device.Region{Buffer: flat, Offset: p.Offset, Bytes: p.Spec.Size()}
}

// watching is an Observer. It calls saving before rank 0 writes a checkpoint.
type watching struct {
	*recorder
	saving func()
}

func (w watching) Saving() { w.saving() }

// fault is a random fault of a trial.
type fault struct {
	ranks, victim int
	where         string // key of memories, "network" or "broadcast"
	step          int64  // step after which the bit flips, or number of the operation in which it flips
	writing       bool   // whether the bit flips between the comparison and the write
	beside        bool
	saveSteps     int64
	compareSteps  int64
	lives         int // number of operations after which a rank is lost; 0: none
}

func randomFault(random *rand.Rand) fault {
	kinds := []string{"parameters", "moments", "averages", "averaged statistics", "running statistics", "gradients",
		"network", "broadcast"}
	f := fault{ranks: 2 + random.IntN(3), where: kinds[random.IntN(len(kinds))], step: 1 + random.Int64N(testSteps-1),
		beside:    random.IntN(2) == 0,
		saveSteps: 1 + random.Int64N(4), compareSteps: random.Int64N(4)}
	f.victim = random.IntN(f.ranks)
	if random.IntN(4) == 0 && f.where != "network" && f.where != "broadcast" {
		f.victim, f.writing = 0, true
	}
	if random.IntN(4) == 0 {
		f.lives = 60 + random.IntN(200)
	}
	return f
}

// wholeRun trains without a fault. It keeps the checkpoint of every step.
func wholeRun(t *testing.T, ranks int) (dir string) {
	c := integrityCrew(t, ranks)
	c.change = func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { keepAll(t, o, 1) }
	for rank, s := range c.start(t) {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
	}
	return c.dir
}

func integrityCrew(t *testing.T, ranks int) crew {
	o := averagedOptions(1)
	o.BatchSize = 12
	shares := map[int][]int{2: {5, 7}, 3: {3, 4, 5}, 4: {3, 3, 4, 2}}[ranks]
	return crew{open: openReference, options: o, shares: shares, sync: true, cap: 200, dir: t.TempDir()}
}

// keepAll makes rank 0 save every few steps, and keep all checkpoints.
func keepAll(t *testing.T, o *Options, steps int64) {
	if o.Store == nil {
		return
	}
	o.SaveSteps = steps
	store, err := checkpoint.Open(o.Store.Dir(), checkpoint.Options{Keep: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	o.Store = store
}

// run runs a trial. It returns the crew and its sessions.
func (f fault) run(t *testing.T, random *rand.Rand) (crew, []session) {
	c := integrityCrew(t, f.ranks)
	left := -1
	if f.where == "network" {
		left = 20 + int(f.step)*10
	} else if f.where == "broadcast" {
		left = 1 + random.IntN(5)
	}
	c.listen = func(rank int, grads collective.Communicator) collective.Communicator {
		if rank == f.victim && left > 0 {
			return &noisy{Communicator: grads, random: random, left: &left}
		}
		return grads
	}
	lives := f.lives
	lost := f.ranks - 1
	c.peers = func(rank int, p *replica.Peers) {
		if f.lives > 0 && rank == lost {
			p.Group = &gradsync.Group{Grads: mortal{p.Group.Grads, &lives}, Stats: mortal{p.Group.Stats, &lives}}
		}
	}
	var once sync.Once
	c.change = func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
		o.CompareSteps, o.Beside = f.compareSteps, f.beside
		keepAll(t, o, f.saveSteps)
		memory := memories[f.where]
		if rank != f.victim || memory == nil {
			return
		}
		done := int64(0)
		flip := func() {
			if done >= f.step {
				once.Do(func() { flipIn(memory(o.Replica), random) })
			}
		}
		rec.after = func(step int64) {
			if done = step; !f.writing {
				flip()
			}
		}
		if f.writing {
			o.Observer = watching{rec, flip}
		}
	}
	return c, c.start(t)
}

// checkSaved compares all accepted checkpoints with those of the whole run. A checkpoint may differ only after the loss
// of a rank. Its state must then say that the ranks were not compared.
func (f fault) checkSaved(t *testing.T, dir, whole string) (saved, marked int) {
	names, err := checkpoint.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		loaded, err := checkpoint.Load(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%+v: %s: %v", f, name, err)
			continue
		}
		after, uncompared := loaded.State.Uncompared()
		loaded.Close()
		same := true
		for _, file := range []string{"model.safetensors", "optimizer.safetensors"} {
			got, err := os.ReadFile(filepath.Join(dir, name, file))
			want, wantErr := os.ReadFile(filepath.Join(whole, name, file))
			if err != nil || wantErr != nil {
				t.Fatal(err, wantErr)
			}
			same = same && bytes.Equal(got, want)
		}
		switch {
		case same:
			saved++
		case !uncompared || f.lives == 0:
			t.Errorf("%+v: checkpoint %s is accepted and has wrong bits", f, name)
		case after >= loaded.State.Step:
			t.Errorf("%+v: checkpoint %s: not compared since step %d", f, name, after)
		default:
			marked++
		}
	}
	return saved, marked
}

// A bit flips in the memory of a random rank after a random step, or in data that the rank receives. No remaining
// checkpoint that claims to be compared may contain wrong bits.
func TestNoCheckpointHasAFlippedBit(t *testing.T) {
	trials := 60
	switch {
	case needtest.Hostile.On():
		trials = 1000
	case testing.Short(): // with the race detector
		trials = 20
	}
	whole := map[int]string{2: wholeRun(t, 2), 3: wholeRun(t, 3), 4: wholeRun(t, 4)}
	saved, marked, found, altered, named, lost := 0, 0, 0, 0, 0, 0
	for trial := range trials {
		random := rand.New(rand.NewPCG(uint64(trial), 1))
		f := randomFault(random)
		c, ranks := f.run(t, random)
		s, m := f.checkSaved(t, c.dir, whole[f.ranks])
		saved, marked = saved+s, marked+m
		var differ *gradsync.ReplicaError
		switch err := ranks[0].err; {
		case errors.As(err, &differ):
			found++
			if differ.Majority >= 0 && len(differ.Odd) == 1 && differ.Odd[0] == f.victim {
				named++
			} else if f.ranks > 2 {
				t.Errorf("%+v: got %v, want that the rank is named", f, err)
			}
		case errors.As(err, new(*checkpoint.AlteredError)):
			altered++
		case err != nil && f.lives > 0:
			lost++
		case err != nil:
			t.Logf("%+v: %v", f, err)
		}
		for _, w := range ranks[0].warnings {
			if errors.As(w, new(*checkpoint.AlteredError)) {
				altered++
			}
		}
	}
	t.Logf("%d trials: %d checkpoints compared and right, %d wrong and marked as not compared; %d differences found, %d with the rank; %d changes before the write; %d runs lost a rank",
		trials, saved, marked, found, named, altered, lost)
	if found < trials/4 || saved == 0 || altered == 0 || named == 0 {
		t.Errorf("the trials found %d differences and %d changes, and saved %d checkpoints: they prove nothing", found,
			altered, saved)
	}
}

// A run that resumes from a checkpoint without a comparison must report this. Later checkpoints must keep the record.
func TestAnUncomparedCheckpointIsNamedAtResume(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{3, 3}, sync: true, cap: 200, dir: t.TempDir()}
	lives := 150
	c.peers = killed(&lives)
	c.change = func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { o.CompareSteps, o.Eval = 4, nil }
	lost := c.start(t)[0]
	if !lost.result.Survived || lost.result.Steps%4 == 0 {
		t.Fatalf("got %+v and %v, want a loss between two comparisons", lost.result, lost.err)
	}
	_, _, state := filesOf(t, c.dir, lost.result.Steps)
	after, yes := state.Uncompared()
	if want := lost.result.Steps / 4 * 4; !yes || after != want {
		t.Errorf("got %t and %d, want that the state is not compared since step %d", yes, after, want)
	}
	c.peers = nil
	ranks := c.start(t)
	if err := errors.Join(ranks[0].err, ranks[1].err); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(ranks[0].warnings); !strings.Contains(text,
		fmt.Sprintf("not compared since step %d", after)) || len(ranks[1].warnings) > 0 {
		t.Errorf("got warnings %s and %v, want one of rank 0 about the comparison", text, ranks[1].warnings)
	}
	_, _, state = filesOf(t, c.dir, testSteps)
	want := checkpoint.Gap{After: after, To: lost.result.Steps, Reason: checkpoint.GapLost}
	if gaps := state.AllGaps(); len(gaps) != 1 || gaps[0] != want {
		t.Errorf("got gaps %v, want %v", gaps, want)
	}
}

// If the states differ, rank 0 must quarantine the checkpoints that are later than the last comparison.
func TestALaterCheckpointIsQuarantined(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{2, 2, 2}, sync: true, dir: t.TempDir()}
	c.change = func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
		o.CompareSteps, o.Eval = 4, nil
		rec.after = func(step int64) {
			if rank == 0 && step == 6 {
				model, optimizer := o.Replica.Tensors()
				if _, err := o.Store.Save(context.Background(), checkpoint.Snapshot{State: checkpoint.State{Step: step},
					Model: model, Optimizer: optimizer}); err != nil {
					t.Error(err)
				}
			}
			if rank == 1 && step == 5 {
				flipBit(t, o.Replica)
			}
		}
	}
	err := c.start(t)[0].err
	if err == nil || !strings.Contains(err.Error(), "rank 1 differs") ||
		!strings.Contains(err.Error(), "equal after step 4") || !strings.Contains(err.Error(), "step-00000006") {
		t.Fatalf("got %v, want the rank, the step and the checkpoint", err)
	}
	if _, _, err := checkpoint.Latest(c.dir); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("got %v, want no checkpoint", err)
	}
	all, err := checkpoint.Quarantined(c.dir)
	if err != nil || len(all) != 1 || len(all[0].Checkpoints) != 1 ||
		!strings.Contains(all[0].Reason, "rank 1 differs") {
		t.Fatalf("got %+v and %v, want one checkpoint with the reason", all, err)
	}
	path := filepath.Join(all[0].Path, all[0].Checkpoints[0])
	_, loadErr := checkpoint.Load(path)
	_, _, latestErr := checkpoint.Latest(all[0].Path)
	for _, err := range []error{loadErr, latestErr} {
		if !errors.As(err, new(*checkpoint.CorruptError)) || !strings.Contains(err.Error(), "rank 1 differs") {
			t.Errorf("got %v, want the reason of the quarantine", err)
		}
	}
	if v, err := checkpoint.Verify(path); err != nil || len(v.Faults) != 1 ||
		!strings.Contains(v.Faults[0].Reason, "rank 1 differs") {
		t.Errorf("got %+v and %v, want the reason of the quarantine", v, err)
	}
}

// Between saves, comparisons must not take more than the given fraction of the time.
func TestComparisonsKeepTheirShareOfTheTime(t *testing.T) {
	compares := comparer{ranks: &consensus{}, every: 10, share: 0.01, last: comparison{step: 100, took: time.Second}}
	for _, c := range []struct {
		step int64
		ago  time.Duration
		want bool
	}{{109, time.Hour, false}, {110, 50 * time.Second, false}, {110, 101 * time.Second, true},
		{500, 50 * time.Second, false}} { // 50 s and not more, because a busy machine may stop before the next call
		compares.last.ended = time.Now().Add(-c.ago)
		if got := compares.due(c.step); got != c.want {
			t.Errorf("step %d, %v after a comparison of 1 s: got %t", c.step, c.ago, got)
		}
	}
}

// BenchmarkComparison times a comparison without the exchange of the hash. It reads and sums up parameters, moments and
// averages.
func BenchmarkComparison(b *testing.B) {
	dev, err := cpu.Driver{}.Open(0, device.Options{})
	if err != nil {
		b.Skip(err)
	}
	defer dev.Close()
	o := averagedOptions(1)
	use(&o, simplecnn.Build(simplecnn.Options{Channels: []int{256, 512, 512}}))
	replica, err := replica.New(dev, o)
	if err != nil {
		b.Fatal(err)
	}
	defer replica.Close()
	compares := comparer{replica: replica, at: &progress{}}
	for b.Loop() {
		c := comparison{}
		if _, err := compares.sumUp(&c); err != nil {
			b.Fatal(err)
		}
		bytes := int64(0)
		for _, t := range append(c.model, c.optimizer...) {
			bytes += t.Shape.Elements() * t.DType.Size()
		}
		b.SetBytes(bytes)
	}
}

// If the data of ranks differ, the run must quarantine the checkpoints of this process. It must keep those of earlier
// processes.
func TestCheckpointsOfDifferentDataAreQuarantined(t *testing.T) {
	const first, found = 3, 8 // steps at which the first process ends, and the second one finds the difference
	for _, beside := range []bool{false, true} {
		c := crew{open: openReference, options: testOptions(), shares: []int{3, 3}, sync: true, dir: t.TempDir()}
		differs := false
		var both sync.WaitGroup
		both.Add(2)
		c.change = func(_ int, stop context.CancelFunc, o *Options, rec *recorder) {
			o.SaveSteps, o.Eval, o.Beside = 5, nil, beside
			step := int64(0)
			rec.after = func(s int64) {
				if step = s; !differs && s == first-1 { // the ranks agree to stop in the next step
					stop()
				}
			}
			o.CompareData = func(context.Context, bool) error {
				if differs && step >= found { // all ranks have the error before any of them leaves
					both.Done()
					both.Wait()
					return fmt.Errorf("sample 3: %w", data.ErrDiffers)
				}
				return nil
			}
		}
		for rank, s := range c.start(t) {
			if s.err != nil || s.result.Steps != first {
				t.Fatalf("rank %d: got %v after %d steps, want no error after %d", rank, s.err, s.result.Steps, first)
			}
		}
		differs = true
		for rank, s := range c.start(t) {
			want := "may have been trained on a mixture, so the same command resumes from the newest checkpoint up to step 3"
			if !errors.Is(s.err, data.ErrDiffers) || !strings.Contains(s.err.Error(), want) ||
				strings.Contains(s.err.Error(), "step-00000005") != (rank == 0) {
				t.Errorf("rank %d: got %v, want %q, and the checkpoints on rank 0", rank, s.err, want)
			}
		}
		kept, _, err := checkpoint.Latest(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		kept.Close() // it was only read
		all, err := checkpoint.Quarantined(c.dir)
		if kept.State.Step != first || err != nil || len(all) != 1 || len(all[0].Checkpoints) == 0 ||
			!strings.Contains(all[0].Reason, "sample 3") {
			t.Errorf("got a checkpoint of step %d, quarantined %+v, and %v; want step %d, and one folder",
				kept.State.Step, all, err, first)
		}
	}
}
