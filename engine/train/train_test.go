package train

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

func TestResumedRunIsBitEqualToOneThatNeverStopped(t *testing.T) {
	mixed := testOptions()
	mix(&mixed)
	for name, o := range map[string]replica.Options{"sgd with mixed samples": mixed,
		"adamw with accumulation": func() replica.Options {
			o := testOptions()
			o.Accumulation = 2
			o.Optimizer = optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05,
				ClipNorm: 0.5}
			return o
		}(), "frozen layers": frozenOptions(), "averaged weights": averagedOptions(2), "f16": halfOptions(),
		"smaller last step": lastOptions(testOptions(), 8, 1), "smaller last step of micro-batches": lastOptions(mixed, 8, 4),
	} {
		t.Run(name, func(t *testing.T) {
			whole := start(context.Background(), t, openReference(t), t.TempDir(), o, &recorder{}, nil)
			if whole.err != nil || whole.result.Steps != testSteps || len(whole.losses) != testSteps {
				t.Fatalf("undisturbed run: %v, %d steps", whole.err, whole.result.Steps)
			}
			dir, pieces := t.TempDir(), &recorder{}
			beside := func(opts *Options) { opts.SaveSteps, opts.Beside = 1, true }
			for range testSteps + 1 {
				ctx, cancel := context.WithCancel(context.Background())
				begun := len(pieces.losses)
				pieces.after = func(step int64) { // in an epoch, before an evaluation, before the last one
					if len(pieces.losses) == begun+2 || step == testSteps {
						cancel()
					}
				}
				s := start(ctx, t, openReference(t), dir, o, pieces, beside)
				cancel()
				if s.err != nil {
					t.Fatal(s.err)
				}
				if !s.result.Interrupted {
					break
				}
			}
			if len(pieces.losses) != testSteps {
				t.Fatalf("interrupted run: got %d steps, want %d", len(pieces.losses), testSteps)
			}
			for i := range whole.losses {
				if whole.losses[i] != pieces.losses[i] || whole.norms[i] != pieces.norms[i] {
					t.Errorf("step %d: loss %.9g norm %.9g, undisturbed %.9g and %.9g", i+1, pieces.losses[i],
						pieces.norms[i], whole.losses[i], whole.norms[i])
				}
			}
			if !reflect.DeepEqual(whole.evals, pieces.evals) {
				t.Errorf("evaluations: got %+v, undisturbed %+v", pieces.evals, whole.evals)
			}
		})
	}
}

func TestAccumulatedGradientIsTheGradientOfTheWholeBatch(t *testing.T) {
	t.Run("reference", func(t *testing.T) { checkAccumulation(t, openReference, 3, 4) })
	// large enough that a pass reuses memory
	t.Run("cpu", func(t *testing.T) { checkAccumulation(t, openCPU, 16, 32, 64) })
}

func checkAccumulation(t *testing.T, open func(*testing.T) device.Device, channels ...int) {
	o := testOptions()
	use(&o, simplecnn.Build(simplecnn.Options{Channels: channels, Dropout: 0.2}))
	o.GhostGroup = 3 // the groups are fixed, so micro-batches do not affect the statistics
	norm := func(accumulation int) (loss, norm float64) {
		o.Accumulation = accumulation
		r, err := replica.New(open(t), o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		res, err := r.Step(context.Background(), testLoader(t, o, false), replica.StepOptions{Rate: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		return res.Loss, res.GradNorm
	}
	loss1, norm1 := norm(1)
	loss2, norm2 := norm(2)
	// Sums of f32 in another order differ by a few units in the last place.
	if math.Abs(loss1-loss2) > 1e-5*loss1 || math.Abs(norm1-norm2) > 1e-5*norm1 {
		t.Errorf("one batch: loss %.8g norm %.8g; two micro-batches: %.8g and %.8g", loss1, norm1, loss2, norm2)
	}
}

func TestEvaluationCountsEverySampleOnce(t *testing.T) {
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), &recorder{}, nil)
	if s.err != nil {
		t.Fatal(s.err)
	}
	// 26 samples give 4 steps per epoch, so the 11 steps complete two epochs. There is another evaluation at the end of
	// the run.
	if len(s.evals) != 3 {
		t.Fatalf("got %d evaluations, want 3", len(s.evals))
	}
	for _, e := range s.evals {
		if e.Samples != 8 { // this is no multiple of the batch size
			t.Errorf("after step %d: got %d samples, want 8", e.Step, e.Samples)
		}
	}
}

func TestPredictedBytesAreWhatTheDeviceGaveOut(t *testing.T) {
	for _, accumulation := range []int{1, 3} {
		o := testOptions()
		o.Accumulation = accumulation
		dev := openReference(t)
		r, err := replica.New(dev, o)
		if err != nil {
			t.Fatal(err)
		}
		allocated, _ := dev.Memory()
		if got := r.PredictedBytes(); got != allocated {
			t.Errorf("accumulation %d: predicted %d bytes, the device gave out %d", accumulation, got, allocated)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := dev.Memory(); left != 0 {
			t.Errorf("accumulation %d: %d bytes left after Close", accumulation, left)
		}
	}
}

func TestStepsThatAreNotFiniteAreSkippedThenRolledBackThenGivenUp(t *testing.T) {
	o := testOptions()
	rec := &recorder{}
	s := start(context.Background(), t, openReference(t), t.TempDir(), o, rec, func(opts *Options) {
		opts.SaveSteps = 1
		opts.Eval = nil
		rec.after = func(step int64) {
			if step == 4 { // from here on, every gradient is NaN, also after a roll-back
				poison(t, opts.Replica)
			}
		}
		opts.Schedule = optim.Schedule{Name: "constant", Base: 0.01}
	})
	if !errors.Is(s.err, ErrDiverged) {
		t.Fatalf("got %v, want ErrDiverged", s.err)
	}
	if s.result.RollBacks != 1 || s.result.Skipped != 4 {
		t.Errorf("got %d roll-backs and %d skipped steps, want 1 and 4", s.result.RollBacks, s.result.Skipped)
	}
	if !reflect.DeepEqual(rec.rolledBackTo, []int64{4}) {
		t.Errorf("went back to %v, want the last step with a finite gradient, 4", rec.rolledBackTo)
	}
}

// If a run ends before its first step, it has no loss. This must also hold after it was saved and resumed.
func TestARunWithoutAStepHasNoLoss(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	for _, which := range []string{"new", "resumed"} {
		s := start(ctx, t, openReference(t), dir, testOptions(), &recorder{}, nil)
		if s.err != nil || !s.result.Interrupted || s.result.Steps != 0 || !math.IsNaN(s.result.LastLoss) {
			t.Errorf("%s run: got %v and %+v, want an interrupted run of 0 steps whose loss is NaN", which, s.err,
				s.result)
		}
	}
}

// A skipped step does not change weights. If a signal ends the run, no roll-back is needed.
func TestASignalBeforeARollBackEndsTheRunWithoutIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rec := &recorder{}
	s := start(ctx, t, openReference(t), t.TempDir(), testOptions(), rec, func(opts *Options) {
		opts.SaveSteps, opts.Eval = 1, nil
		rec.after = func(step int64) {
			switch step {
			case 4:
				poison(t, opts.Replica)
			case 6: // the last step that NaNPatience permits
				cancel()
			}
		}
	})
	if s.err != nil || !s.result.Interrupted || s.result.RollBacks != 0 || s.result.Steps != 6 ||
		len(rec.rolledBackTo) != 0 {
		t.Errorf("got %v, %+v, went back to %v; want an interrupted run of 6 steps without a roll-back", s.err,
			s.result, rec.rolledBackTo)
	}
}

func TestRollBackToAnEpochsEndDoesNotEvaluateItAgain(t *testing.T) {
	rec := &recorder{}
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), rec, func(opts *Options) {
		opts.SaveSteps = 1
		rec.after = func(step int64) {
			if step == 4 {
				// The first epoch ends with this step, which evaluates and saves correct parameters.
				poison(t, opts.Replica)
			}
		}
	})
	if !errors.Is(s.err, ErrDiverged) || !reflect.DeepEqual(rec.rolledBackTo, []int64{4}) {
		t.Fatalf("got %v, went back to %v", s.err, rec.rolledBackTo)
	}
	if len(rec.evals) != 1 || rec.evals[0].Step != 4 {
		t.Errorf("got evaluations %+v, want one of step 4", rec.evals)
	}
}

func TestAnEndThatSettingsMovedIsEvaluated(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	ctx, cancel := context.WithCancel(context.Background())
	rec := &recorder{after: func(step int64) {
		if step == 6 {
			cancel()
		}
	}}
	if s := start(ctx, t, openReference(t), dir, o, rec, nil); s.err != nil || s.result.Steps != 6 {
		t.Fatalf("first part: %v, %d steps", s.err, s.result.Steps)
	}
	s := start(context.Background(), t, openReference(t), dir, o, &recorder{}, func(opts *Options) { opts.Steps = 5 })
	if s.err != nil || s.result.Interrupted || len(s.losses) != 0 || len(s.evals) != 1 || s.evals[0].Step != 6 ||
		s.result.Best == nil {
		t.Errorf("got %v, %+v, evaluations %+v: want no step, and step 6 evaluated", s.err, s.result, s.evals)
	}
}

func TestAForeignCheckpointIsSavedAtOnce(t *testing.T) {
	o := testOptions()
	first := t.TempDir()
	if s := start(context.Background(), t, openReference(t), first, o, &recorder{}, nil); s.err != nil {
		t.Fatal(s.err)
	}
	c, _, err := checkpoint.Latest(first)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	own := t.TempDir()
	s := start(context.Background(), t, openReference(t), own, o, &recorder{}, func(opts *Options) {
		if err := opts.Replica.Load(c); err != nil {
			t.Fatal(err)
		}
		opts.Resume, opts.Foreign = &c.State, true
	})
	if s.err != nil || len(s.losses) != 0 {
		t.Fatalf("got %v and %d steps, want none", s.err, len(s.losses))
	}
	saved, _, err := checkpoint.Latest(own)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	if saved.State.Step != testSteps || s.result.Checkpoint != saved.Path {
		t.Errorf("got step %d at %s, result says %s", saved.State.Step, saved.Path, s.result.Checkpoint)
	}
}

// This test counts the allocations of the loop, without those of observers. TestStepsAllocateNothing counts the
// allocations of steps on the CPU device.
func TestLoopAllocatesNothingAStep(t *testing.T) {
	if addressSanitizer {
		t.Skip("the address sanitizer allocates on the Go heap")
	}
	const early, late = 20, 120
	var before, after runtime.MemStats
	o := averagedOptions(1)
	use(&o, simplecnn.Build(simplecnn.Options{Channels: []int{16, 32}}))
	s := start(context.Background(), t, openCPU(t), t.TempDir(), o, &recorder{}, func(opts *Options) {
		opts.Observer, opts.Eval, opts.Steps = silent{func(step int64) {
			switch step {
			case early:
				runtime.ReadMemStats(&before)
			case late:
				runtime.ReadMemStats(&after)
			}
		}}, nil, late
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	// Another goroutine shuffles the epochs, and the Go runtime sometimes allocates.
	if n := after.Mallocs - before.Mallocs; n > (late-early)/10 {
		t.Errorf("got %d heap allocations in %d steps, want none", n, late-early)
	}
}

// silent is an observer that does not allocate.
type silent struct{ after func(step int64) }

func (s silent) StepDone(r *StepRecord)              { s.after(r.Step) }
func (silent) RolledBack(int64)                      {}
func (silent) EvalDone(Evaluation)                   {}
func (silent) Saving()                               {}
func (silent) Saved(checkpoint.Saved, time.Duration) {}
func (silent) Warn(error)                            {}

func TestRollBackPassesOverADamagedCheckpoint(t *testing.T) {
	dir, rec := t.TempDir(), &recorder{}
	s := start(context.Background(), t, openReference(t), dir, testOptions(), rec, func(opts *Options) {
		opts.SaveSteps = 1
		opts.Eval = nil
		rec.after = func(step int64) {
			if step == 5 {
				poison(t, opts.Replica)
			}
			if step == 6 && len(rec.rolledBackTo) == 0 { // the first step that is skipped, and therefore not saved
				if err := os.Truncate(filepath.Join(dir, checkpoint.StepName(5), "model.safetensors"), 9); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if !errors.Is(s.err, ErrDiverged) {
		t.Fatalf("got %v, want ErrDiverged", s.err)
	}
	if !reflect.DeepEqual(rec.rolledBackTo, []int64{4}) || len(rec.warnings) < 2 {
		t.Errorf("went back to %v with warnings %v, want step 4 and that step 5 is damaged", rec.rolledBackTo,
			rec.warnings)
	}
}

func TestAnEvaluationThatIsNotFiniteIsNeverTheBest(t *testing.T) {
	rec := &recorder{}
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), rec, func(opts *Options) {
		rec.after = func(step int64) {
			if step == testSteps {
				fillNaN(opts.Replica.State().Values.Host())
			}
		}
	})
	if !errors.Is(s.err, ErrDiverged) || s.result.Checkpoint == "" {
		t.Fatalf("got %v, checkpoint %q, want a saved run that diverged", s.err, s.result.Checkpoint)
	}
	last := s.result.LastEval
	if !math.IsNaN(last.Loss) || last.Top1 != 0 || last.Best || s.result.Best == nil ||
		s.result.Best.Step == testSteps {
		t.Errorf("got evaluation %+v, best %+v: want NaN, nothing recognised, and an earlier one as the best", last,
			s.result.Best)
	}
}

func TestAnotherBatchSizeGoesOnBehindTheSamplesOfTheEpoch(t *testing.T) {
	dir, o := t.TempDir(), testOptions() // 26 samples give 4 steps of 6
	first := start(context.Background(), t, openReference(t), dir, o, &recorder{}, func(opts *Options) {
		opts.Steps = 6
	})
	if first.err != nil || first.result.SamplesSeen != 36 || first.result.Epochs != 1.5 {
		t.Fatalf("first part: %v, %d samples, %v epochs", first.err, first.result.SamplesSeen, first.result.Epochs)
	}
	o.BatchSize = 4 // 6 steps per epoch; the second epoch has already used 12 samples
	second := start(context.Background(), t, openReference(t), dir, o, &recorder{}, func(opts *Options) {
		opts.Steps, opts.Epochs = 0, 3
	})
	if second.err != nil {
		t.Fatal(second.err)
	}
	type place struct{ step, total, epoch, inEpoch int }
	at := func(r StepRecord) place { return place{int(r.Step), int(r.Total), r.Epoch, r.EpochStep} }
	n := len(second.steps)
	if n != 9 || at(second.steps[0]) != (place{7, 15, 1, 4}) || at(second.steps[n-1]) != (place{15, 15, 2, 6}) {
		t.Errorf("got %d steps, the first %+v, the last %+v", n, at(second.steps[0]), at(second.steps[n-1]))
	}
	if second.result.SamplesSeen != 36+9*4 || second.result.Epochs != 3 {
		t.Errorf("got %d samples, %v epochs, want 72 and 3", second.result.SamplesSeen, second.result.Epochs)
	}
	// The schedule is a cosine over 3 epochs of 6 steps. The first step of the second part is in the middle of the
	// second epoch, which is step 9 of the schedule.
	schedule := optim.Schedule{Name: "cosine", Base: 0.05, Warmup: 3, Total: 18}
	if got, want := second.steps[0].Rate, schedule.Rate(9); got != want {
		t.Errorf("rate of the first step: got %v, want %v", got, want)
	}
}

// failing is a data set. When broken is set, its samples become unreadable.
type failing struct {
	data.Dataset
	broken *atomic.Bool
}

func (f failing) NewReader() (data.Reader, error) {
	r, err := f.Dataset.NewReader()
	return failingReader{r, f.broken}, err
}

type failingReader struct {
	data.Reader
	broken *atomic.Bool
}

func (r failingReader) Read(index int, sizer data.Sizer, img *data.Image) error {
	if r.broken.Load() {
		return &data.Fault{Op: "read sample", Index: index, Err: io.ErrUnexpectedEOF}
	}
	return r.Reader.Read(index, sizer, img)
}

func TestAFaultOfTheDataLosesNoStep(t *testing.T) {
	dir, rec, o := t.TempDir(), &recorder{}, testOptions()
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 9, Train: 600, Classes: 3, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	loader, err := data.NewLoader(data.Options{Samples: data.Images{Dataset: failing{set.Train, &broken},
		Transform: data.Transform{Crop: data.CentreCrop, Size: testSize}},
		BatchSize: o.BatchSize, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer loader.Close()
	s := start(context.Background(), t, openReference(t), dir, o, rec, func(opts *Options) {
		opts.Train, opts.Steps = loader, 100
		rec.after = func(step int64) { broken.Store(step >= 3) }
	})
	if !errors.As(s.err, new(*data.Fault)) {
		t.Fatalf("got %v, want a *data.Fault", s.err)
	}
	c := newest(t, dir)
	if c.State.Step != s.result.Steps || s.result.Steps < 3 {
		t.Errorf("saved step %d of %d", c.State.Step, s.result.Steps)
	}
}

func fillInf(floats []byte) {
	for i := 0; i < len(floats); i += 4 {
		binary.LittleEndian.PutUint32(floats[i:], math.Float32bits(float32(math.Inf(1))))
	}
}

func fillNaN(floats []byte) {
	for i := range floats {
		floats[i] = 0xff
	}
}
