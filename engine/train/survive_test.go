package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// mortal is a communicator whose rank fails after a number of operations. From then on, it only returns errKilled.
type mortal struct {
	collective.Communicator
	lives *int // remaining operations; all communicators of the rank use the same number
}

var errKilled = errors.New("killed")

func (m mortal) Enqueue(op collective.Op) error {
	if *m.lives--; *m.lives <= 0 {
		m.Communicator.Abort(errKilled)
		return errKilled
	}
	return m.Communicator.Enqueue(op)
}

// killed makes rank 1 fail after *lives operations.
func killed(lives *int) func(rank int, p *replica.Peers) {
	return func(rank int, p *replica.Peers) {
		if rank == 1 {
			p.Group = &gradsync.Group{Grads: mortal{p.Group.Grads, lives}, Stats: mortal{p.Group.Stats, lives}}
		}
	}
}

// filesOf returns the files of a checkpoint and its state.
func filesOf(t *testing.T, dir string, step int64) (model, optimizer []byte, state checkpoint.State) {
	t.Helper()
	at := filepath.Join(dir, checkpoint.StepName(step))
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(at, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	found, skipped, err := checkpoint.Latest(dir)
	if err != nil || len(skipped) > 0 {
		t.Fatalf("%s: %v, skipped %v", dir, err, skipped)
	}
	defer found.Close()
	return read("model.safetensors"), read("optimizer.safetensors"), found.State
}

// Rank 1 is lost at different operations of a step. The checkpoint of rank 0 must be bit-equal to a checkpoint of the
// last complete step.
func TestASurvivorSavesTheLastStep(t *testing.T) {
	ghost, accumulated := testOptions(), testOptions()
	ghost.GhostGroup = 2
	accumulated.Accumulation = 2
	for _, c := range []struct {
		name string
		crew crew
	}{
		{"statistics of all samples", crew{options: testOptions(), shares: []int{2, 3, 1}, sync: true, cap: 200}},
		{"statistics of groups, averaged", crew{options: ghost, shares: []int{2, 4}, cap: 200}},
		{"micro-batches and averaged weights",
			crew{options: func() replica.Options { o := averagedOptions(1); o.Accumulation = 2; return o }(),
				shares: []int{2, 1}, sync: true, cap: 200}},
		{"after the backward pass", crew{options: accumulated, shares: []int{1, 2}, sync: true, sequential: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.crew.open = openReference
			const immortal = 1 << 30
			lives, atStart := immortal, 0
			whole := c.crew
			whole.dir, whole.peers = t.TempDir(), killed(&lives)
			whole.change = func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
				o.CompareSteps = 2
				if rank == 1 {
					atStart = immortal - lives // number of operations before the first step
				}
			}
			for rank, s := range whole.start(t) {
				if s.err != nil {
					t.Fatalf("rank %d: %v", rank, s.err)
				}
			}
			trials, survived := 10, 0
			switch {
			case needtest.Hostile.On():
				trials = 100
			case testing.Short(): // with the race detector
				trials = 4
			}
			for trial := range trials {
				at := atStart + trial*(immortal-lives-atStart)/trials
				if checkLost(t, c.crew, at) {
					survived++
				}
			}
			if survived < trials/2 {
				t.Errorf("rank 0 saved in %d of %d trials: the rank was lost too early", survived, trials)
			}
		})
	}
}

// checkLost lets rank 1 be lost at operation at. It compares the checkpoint of rank 0 with that of a run that stops
// after the same step.
func checkLost(t *testing.T, c crew, at int) (survived bool) {
	t.Helper()
	lives := at
	c.dir, c.peers = t.TempDir(), killed(&lives)
	c.change = func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { o.CompareSteps, o.KeepBest = 2, false }
	ranks := c.start(t)
	lost := ranks[0].result
	if ranks[0].err == nil {
		t.Fatalf("operation %d: rank 0 got %v, want that rank 1 is lost", at, ranks[0].err)
	}
	if !lost.Survived {
		if lost.Steps > 0 {
			t.Errorf("operation %d: step %d is lost: %v", at, lost.Steps, ranks[0].err)
		}
		return false
	}
	if filepath.Base(lost.Checkpoint) != checkpoint.StepName(lost.Steps) {
		t.Errorf("operation %d: saved %s after step %d", at, lost.Checkpoint, lost.Steps)
	}
	told := c
	told.dir, told.peers = t.TempDir(), nil
	told.change = func(_ int, stop context.CancelFunc, o *Options, _ *recorder) {
		o.CompareSteps, o.KeepBest = 2, false
		o.BeforeStep = func(step int64) {
			if step == lost.Steps {
				stop() // the run ends after this step
			}
		}
	}
	for rank, s := range told.start(t) {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
	}
	gotModel, gotOptimizer, gotState := filesOf(t, c.dir, lost.Steps)
	model, optimizer, state := filesOf(t, told.dir, lost.Steps)
	if !bytes.Equal(gotModel, model) || !bytes.Equal(gotOptimizer, optimizer) {
		t.Errorf("operation %d: what was saved after step %d differs from a checkpoint of that step", at, lost.Steps)
	}
	if !reflect.DeepEqual(gotState.Optimizer, state.Optimizer) || gotState.SamplesSeen != state.SamplesSeen ||
		gotState.Step != state.Step {
		t.Errorf("operation %d: got state %+v, want %+v", at, gotState, state)
	}
	return true
}

// If a run resumes from a survivor's checkpoint, its losses must be those of an undisturbed run.
func TestTheRunOfASurvivorGoesOn(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{3, 3}, sync: true, cap: 200, dir: t.TempDir()}
	whole := c
	whole.dir = t.TempDir()
	want := whole.start(t)
	// Rank 1 fails after the exchange of the last step's reports. Without this exchange, no rank would know the loss of
	// this step.
	lives := 151
	c.peers = killed(&lives)
	lost := c.start(t)[0]
	if !lost.result.Survived || lost.result.Steps == 0 || lost.result.Steps == testSteps {
		t.Fatalf("got %+v and %v, want a loss in mid-run", lost.result, lost.err)
	}
	c.peers = nil
	for rank, s := range c.start(t) {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
		losses := append(append([]float64(nil), lost.losses...), s.losses...)
		if !reflect.DeepEqual(losses, want[rank].losses) {
			t.Errorf("rank %d: got losses %v, want %v", rank, losses, want[rank].losses)
		}
	}
}

// If the replicas differ, no rank may save, because no state is known to be correct.
func TestRanksThatDifferSaveNothing(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{2, 2, 2}, sync: true, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			rec.after = func(step int64) {
				if rank == 2 && step == 2 {
					flipBit(t, o.Replica)
				}
			}
		}}
	for rank, s := range c.start(t) {
		if !errors.As(s.err, new(*gradsync.ReplicaError)) || s.result.Survived || s.result.Checkpoint != "" {
			t.Errorf("rank %d: got %v and %+v, want that the replicas differ and nothing saved since", rank, s.err,
				s.result)
		}
	}
}

// flipBit flips one bit in the first parameter.
func flipBit(t *testing.T, r *replica.Replica) {
	t.Helper()
	p := r.State().Params.Params[0]
	b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	if err := r.State().Read(r.State().Values, p, b); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := r.State().Write(r.State().Values, p, b); err != nil {
		t.Fatal(err)
	}
}

// If a rank cannot read its data, the last complete step must still be saved.
func TestAFaultOfARanksDataLosesNoStep(t *testing.T) {
	for _, victim := range []int{0, 1} {
		c := crew{open: openReference, options: testOptions(), shares: []int{3, 3}, sync: true, dir: t.TempDir(),
			change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
				o.Eval = nil
				if rank == victim {
					o.Train = failingLoader(t, o.Replica, rec)
				}
			}}
		ranks := c.start(t)
		if s := ranks[victim]; !errors.As(s.err, new(*data.Fault)) {
			t.Errorf("rank %d: got %v, want a fault of its data", victim, s.err)
		}
		if s := ranks[0]; !s.result.Survived || s.result.Steps == 0 ||
			filepath.Base(s.result.Checkpoint) != checkpoint.StepName(s.result.Steps) {
			t.Errorf("rank %d has a fault: rank 0 got %v and %+v, want its last step saved", victim, s.err, s.result)
		}
	}
}

// failingLoader returns a loader. Its data set cannot be read after step 3.
func failingLoader(t *testing.T, r *replica.Replica, rec *recorder) *data.Loader {
	t.Helper()
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 9, Train: 600, Classes: 3, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	broken := new(atomic.Bool)
	rec.after = func(step int64) { broken.Store(step >= 3) }
	part := r.Shares().Part()
	l, err := data.NewLoader(data.Options{Samples: data.Images{Dataset: failing{set.Train, broken},
		Transform: data.Transform{Crop: data.CentreCrop, Size: testSize}}, BatchSize: r.Options().BatchSize,
		Workers: 1, Share: &part, MaxCount: max(r.Shares().Most(), 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
