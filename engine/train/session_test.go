package train

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/task/language"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

const (
	testBatch   = 6
	testSize    = 8
	testClasses = 3
	testSteps   = 11 // an epoch has 4 steps, so the run ends in the middle of an epoch
)

func openReference(t *testing.T) device.Device {
	t.Helper()
	dev, err := reference.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &faulty{Device: dev}
}

func testOptions() replica.Options {
	return replica.Options{
		Task: images.Classify{Model: simplecnn.Build(simplecnn.Options{Channels: []int{3, 4}, Dropout: 0.2}),
			Classes: testClasses, Size: testSize,
			Mean: [3]float32{0.5, 0.5, 0.5}, Std: [3]float32{0.25, 0.25, 0.25}, LabelSmoothing: 0.1},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "sgd", Momentum: 0.9, Nesterov: true, WeightDecay: 1e-3},
	}
}

// classify changes the classification task of o by a function.
func classify(o *replica.Options, change func(*images.Classify)) {
	task := o.Task.(images.Classify)
	change(&task)
	o.Task = task
}

// mix gives the training samples of o a second label.
func mix(o *replica.Options) { classify(o, func(c *images.Classify) { c.Mixed = true }) }

// several makes the classes of o independent of each other. An image of class k has the labels 0 to k-1.
func several(o *replica.Options) { classify(o, func(c *images.Classify) { c.Independent = true }) }

// use sets the model of o.
func use(o *replica.Options, m models.Classifier) {
	classify(o, func(c *images.Classify) { c.Model = m })
}

// newest opens the newest checkpoint in a folder. The end of the test closes it.
func newest(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func testSchedule() optim.Schedule { return optim.Schedule{Name: "cosine", Base: 0.05, Warmup: 3} }

func testLoader(t *testing.T, o replica.Options, evaluate bool) *data.Loader {
	t.Helper()
	return shareLoader(t, o, nil, evaluate)
}

// stepOf trains one step with a new replica.
func stepOf(t *testing.T, o replica.Options, samples data.Options) replica.StepResult {
	t.Helper()
	r, err := replica.New(openReference(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := r.Step(t.Context(), loadShare(t, samples, nil), replica.StepOptions{Rate: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// loadShare starts a loader for the share of a rank. If owner is nil, it loads whole batches.
func loadShare(t *testing.T, lo data.Options, owner *shares.Owner) *data.Loader {
	t.Helper()
	if owner != nil {
		part := owner.Part()
		lo.Share, lo.MaxCount = &part, max(owner.Most(), 1)
	}
	l, err := data.NewLoader(lo)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// shareLoader is testLoader for the share of a rank. If owner is nil, it loads whole batches.
func shareLoader(t *testing.T, o replica.Options, owner *shares.Owner, evaluate bool) *data.Loader {
	t.Helper()
	lo := data.Options{Seed: o.Seed, BatchSize: o.BatchSize, Accumulation: o.Accumulation, Workers: 1,
		GroupByLength: o.Positions > 0, KeepLast: o.LastBatch > 0}
	if evaluate {
		lo = data.Options{BatchSize: o.BatchSize / o.Accumulation, Evaluate: true, Workers: 1}
	}
	if p, ok := o.Task.(language.Predict); ok && p.NextSentence {
		lo.Samples = pairs{26, 26}
		if evaluate {
			lo.Samples = pairs{8, 8}
		}
	} else if ok {
		lo.Samples = phrases{26}
		if evaluate {
			lo.Samples = phrases{8}
		}
	} else if c, ok := o.Task.(language.Classify); ok {
		lo.Samples = sentences{26, c.Classes}
		if evaluate {
			lo.Samples = sentences{8, c.Classes}
		}
	} else {
		lo.Samples = testImages(t, o, evaluate)
	}
	return loadShare(t, lo, owner)
}

func testImages(t *testing.T, o replica.Options, evaluate bool) data.Samples {
	t.Helper()
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 9, Train: 26, Eval: 8, Classes: 3, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	var sets *data.LabelSets
	if o.Task.(images.Classify).Independent {
		sets = &data.LabelSets{Names: make([]string, testClasses), Sets: [][]int32{nil, {0}, {0, 1}}}
	}
	if evaluate {
		return data.Images{Dataset: set.Eval, Sets: sets,
			Transform: data.Transform{Crop: data.CentreCrop, Size: testSize}}
	}
	samples := data.Images{
		Dataset: set.Train, Sets: sets,
		Transform: data.Transform{Crop: data.PadCrop, Size: testSize, Pad: 1, Flip: true}}
	if o.Task.(images.Classify).Mixed {
		samples.Mix = data.Mix{MixupAlpha: 0.5, CutmixAlpha: 1, Probability: 0.9, Switch: 0.5, Mode: data.MixPair}
	}
	return samples
}

// recorder is an Observer that stores all events.
type recorder struct {
	losses, norms []float64
	steps         []StepRecord
	evals         []Evaluation
	saved         int
	warnings      []error
	rolledBackTo  []int64
	after         func(step int64) // called after each step; may be nil
	over          func()           // called after the run; may be nil
}

func (r *recorder) StepDone(s *StepRecord) {
	r.losses = append(r.losses, s.Score().Loss)
	r.norms = append(r.norms, s.GradNorm)
	kept := *s
	kept.Ranks = slices.Clone(s.Ranks)
	r.steps = append(r.steps, kept)
	if r.after != nil {
		r.after(s.Step)
	}
}

func (r *recorder) RolledBack(step int64)                 { r.rolledBackTo = append(r.rolledBackTo, step) }
func (r *recorder) EvalDone(e Evaluation)                 { e.Took = 0; r.evals = append(r.evals, e) }
func (r *recorder) Saving()                               {}
func (r *recorder) Saved(checkpoint.Saved, time.Duration) { r.saved++ }
func (r *recorder) Warn(err error)                        { r.warnings = append(r.warnings, err) }

// session is a part of a run: the part that one process trains.
type session struct {
	*recorder
	replica *replica.Replica
	result  Result
	err     error
}

// start runs a session on dev. If there are checkpoints in the folder dir, it resumes from the newest one.
func start(ctx context.Context, t *testing.T, dev device.Device, dir string, o replica.Options, rec *recorder,
	change func(*Options)) session {
	t.Helper()
	r, err := replica.New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := checkpoint.Open(dir, checkpoint.Options{Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	opts := Options{Replica: r, Train: testLoader(t, o, false), Eval: testLoader(t, o, true), Store: store,
		Observer: rec,
		Schedule: testSchedule(), Steps: testSteps, EvalInterval: 1, EvalAverage: true,
		KeepBest: true, NaNPatience: 2, NaNRollbacks: 1}
	c, _, err := checkpoint.Latest(dir)
	if err == nil {
		if err := r.Load(c); err != nil {
			t.Fatal(err)
		}
		state := c.State
		opts.Resume = &state
		c.Close()
	} else if !errors.Is(err, checkpoint.ErrNone) {
		t.Fatal(err)
	}
	if change != nil {
		change(&opts)
	}
	res, err := Run(ctx, opts)
	return session{rec, r, res, err}
}
