package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// spoilt is a data set of which every seventh sample cannot be read.
type spoilt struct{ data.Dataset }

func (s spoilt) NewReader() (data.Reader, error) {
	r, err := s.Dataset.NewReader()
	return spoiltReader{r}, err
}

type spoiltReader struct{ data.Reader }

func (r spoiltReader) Read(i int, sizer data.Sizer, img *data.Image) error {
	if i%7 == 3 {
		return &data.Fault{Op: "read sample", Index: i, Err: io.ErrUnexpectedEOF}
	}
	return r.Reader.Read(i, sizer, img)
}

// spoil replaces the data sets of o. In the new sets, some samples cannot be read, and an epoch has 4 steps. It sets
// o.MaxReplaced to limit.
func spoil(t *testing.T, o *Options, seed uint64, workers, limit int) {
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 9, Train: 4 * testBatch, Eval: 20, Classes: 3,
		Size: testSize})
	if err != nil {
		t.Error(err)
		return
	}
	open := func(set data.Dataset, evaluate bool) *data.Loader {
		lo := data.Options{Seed: seed, BatchSize: testBatch, Workers: workers, Evaluate: evaluate,
			Samples: data.Images{Dataset: data.Skip(spoilt{set}, 0, nil),
				Transform: data.Transform{Crop: data.CentreCrop, Size: testSize}}}
		if o.Replica.Group() == nil {
			return loadShare(t, lo, nil)
		}
		return loadShare(t, lo, o.Replica.Shares())
	}
	o.Train, o.MaxReplaced = open(set.Train, false), limit
	if o.Eval != nil {
		o.Eval = open(set.Eval, true)
	}
}

// spoiltRun trains one rank on samples of which some cannot be read, without evaluations. limit is o.MaxReplaced.
func spoiltRun(ctx context.Context, t *testing.T, dir string, rec *recorder, seed uint64, limit int,
	change func(*Options)) session {
	t.Helper()
	return start(ctx, t, openReference(t), dir, testOptions(), rec, func(o *Options) {
		o.Eval = nil
		spoil(t, o, seed, 1, limit)
		if change != nil {
			change(o)
		}
	})
}

func TestTooManyUnreadableSamplesEndAllRanksAfterTheSameStep(t *testing.T) {
	const most = 1 // an epoch has 3 or 4 samples that cannot be read
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			free := spoiltRun(t.Context(), t, t.TempDir(), &recorder{}, seed, 0, nil)
			if free.err != nil {
				t.Fatal(free.err)
			}
			want := int64(0)
			for _, s := range free.steps {
				if s.EpochReplaced > most {
					want = s.Step
					break
				}
			}
			one := spoiltRun(t.Context(), t, t.TempDir(), &recorder{}, seed, most, nil)
			c := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, dir: t.TempDir(),
				change: func(_ int, _ context.CancelFunc, o *Options, _ *recorder) {
					o.Eval = nil
					spoil(t, o, seed, 3, most)
				}}
			for k, s := range append(c.start(t), one) {
				if !errors.As(s.err, new(*data.Fault)) || s.result.Steps != want || want == 0 || k != 1 &&
					s.result.Checkpoint == "" {
					t.Errorf("run %d ended after step %d, saved in %q, with %v, want a fault after step %d", k,
						s.result.Steps, s.result.Checkpoint, s.err, want)
				}
			}
		})
	}
}

func TestUnreadableSamplesAreCountedOverAResume(t *testing.T) {
	const seed, most = 1, 2
	whole := spoiltRun(t.Context(), t, t.TempDir(), &recorder{}, seed, most, nil)
	free := spoiltRun(t.Context(), t, t.TempDir(), &recorder{}, seed, 0, nil)
	if !errors.As(whole.err, new(*data.Fault)) || whole.result.Steps < 2 || free.err != nil {
		t.Fatalf("ended after step %d with %v, without a limit with %v, want a fault within an epoch",
			whole.result.Steps, whole.err, free.err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := &recorder{after: func(step int64) {
		if step == whole.result.Steps-1 {
			cancel()
		}
	}}
	if s := spoiltRun(ctx, t, dir, rec, seed, most, nil); s.err != nil || !s.result.Interrupted {
		t.Fatalf("first part: %v", s.err)
	}
	s := spoiltRun(t.Context(), t, dir, &recorder{}, seed, most, nil)
	if !errors.As(s.err, new(*data.Fault)) || s.result.Steps != whole.result.Steps ||
		s.result.Replaced != whole.result.Replaced {
		t.Errorf("resumed: ended after step %d and %d samples with %v, want a fault after step %d and %d",
			s.result.Steps, s.result.Replaced, s.err, whole.result.Steps, whole.result.Replaced)
	}
	if s := spoiltRun(t.Context(), t, dir, &recorder{}, seed, most, nil); !errors.As(s.err, new(*data.Fault)) ||
		len(s.steps) != 0 {
		t.Errorf("resumed over its limit: %d steps, %v, want none and a fault", len(s.steps), s.err)
	}
	if s := spoiltRun(t.Context(), t, dir, &recorder{}, seed, 100, nil); s.err != nil ||
		s.result.Replaced != free.result.Replaced {
		t.Errorf("with a larger limit: %d samples, %v, want %d", s.result.Replaced, s.err, free.result.Replaced)
	}
}

func TestStepsThatARollBackRepeatsCountTheirUnreadableSamplesOnce(t *testing.T) {
	free := spoiltRun(t.Context(), t, t.TempDir(), &recorder{}, 1, 0, nil)
	rec, heal := &recorder{}, func() {}
	s := spoiltRun(t.Context(), t, t.TempDir(), rec, 1, 100, func(o *Options) {
		o.SaveSteps = 1
		rec.after = func(step int64) {
			if step == 4 && len(rec.steps) == 4 {
				heal = poison(t, o.Replica)
			}
			if step == 6 {
				heal()
			}
		}
	})
	if s.err != nil || s.result.RollBacks != 1 || s.result.Replaced != free.result.Replaced {
		t.Errorf("%v, %d roll-backs, %d samples, want 1 and %d", s.err, s.result.RollBacks, s.result.Replaced,
			free.result.Replaced)
	}
	n := map[int64]int{}
	for _, step := range rec.steps {
		if before, twice := n[step.Step]; twice && before != step.EpochReplaced {
			t.Errorf("step %d: %d of the epoch, then %d", step.Step, before, step.EpochReplaced)
		}
		n[step.Step] = step.EpochReplaced
	}
}

func TestTooManyUnreadableSamplesOfAnEvaluationEndTheRunSaved(t *testing.T) {
	c := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, dir: t.TempDir(),
		change: func(_ int, _ context.CancelFunc, o *Options, _ *recorder) {
			train := o.Train
			spoil(t, o, 1, 2, 2) // 3 of the 20 held-out samples cannot be read
			o.Train = train
		}}
	for rank, s := range c.start(t) {
		if !errors.As(s.err, new(*data.Fault)) || s.result.Steps != 4 || rank == 0 && s.result.Checkpoint == "" {
			t.Errorf("rank %d ended after step %d, saved in %q, with %v, want a fault of the first evaluation", rank,
				s.result.Steps, s.result.Checkpoint, s.err)
		}
	}
}
