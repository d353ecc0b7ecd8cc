package train

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEvaluationsThatAreNoBetterAreCounted(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		stop   EarlyStop
		values []float64 // values of the metric, one for each evaluation
		since  []int
	}{
		{"accuracy", EarlyStop{Metric: "top1", Patience: 2}, []float64{0.5, 0.6, 0.6, 0.59, 0.61},
			[]int{0, 0, 1, 2, 0}},
		{"five best", EarlyStop{Metric: "top5", Patience: 2}, []float64{0.5, 0.4}, []int{0, 1}},
		{"loss", EarlyStop{Metric: "loss", Patience: 2}, []float64{2, 1.5, 1.5, 1.6, 1}, []int{0, 0, 1, 2, 0}},
		{"less than the least step is none, and the best stays", EarlyStop{Metric: "loss", Patience: 2, MinDelta: 0.25},
			[]float64{2, 1.875, 1.75, 1.5}, []int{0, 1, 2, 0}},
		{"NaN is never better", EarlyStop{Metric: "loss", Patience: 2}, []float64{nan, nan, 5, nan}, []int{1, 2, 0, 1}},
		{"no patience", EarlyStop{Metric: "loss"}, []float64{1, 2, 3}, []int{0, 0, 0}},
	} {
		var s stopping
		for i, v := range c.values {
			e := Evaluation{Loss: nan, Top1: nan, Top5: nan}
			*map[string]*float64{"loss": &e.Loss, "top1": &e.Top1, "top5": &e.Top5}[c.stop.Metric] = v
			s.note(c.stop, e)
			if s.Since != c.since[i] || s.over(c.stop) != (c.stop.Patience > 0 && c.since[i] >= c.stop.Patience) {
				t.Errorf("%s, evaluation %d: got %d without an improvement, over %v, want %d", c.name, i, s.Since,
					s.over(c.stop), c.since[i])
			}
		}
	}
	s := stopping{Metric: "loss", Since: 7}
	if s.over(EarlyStop{Metric: "top1", Patience: 2}) {
		t.Error("evaluations of another metric count")
	}
}

// never is an EarlyStop without improvements, because no loss decreases by 1e9.
var never = EarlyStop{Metric: "loss", Patience: 1, MinDelta: 1e9}

func TestARunThatDoesNotImproveEndsAlsoAfterAResume(t *testing.T) {
	dir, rec := t.TempDir(), &recorder{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rec.after = func(step int64) {
		if step == 5 { // the first evaluation, at the end of an epoch of 4 steps, has ended
			cancel()
		}
	}
	change := func(o *Options) { o.EarlyStop = never }
	if s := start(ctx, t, openReference(t), dir, testOptions(), rec, change); s.err != nil || !s.result.Interrupted ||
		s.result.GaveUp != "" {
		t.Fatalf("got %v, %+v, want an interruption", s.err, s.result)
	}
	for i := range 2 { // for the second session, no steps are left
		s := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, change)
		if s.err != nil || s.result.Steps != 8 ||
			!strings.HasPrefix(s.result.GaveUp, "loss has not improved by more than 1e+09 over its best value, ") ||
			strings.Contains(s.result.GaveUp, "%!") || len(s.losses) != 3*(1-i) {
			t.Errorf("resumed %d times: got %v, %+v after %d steps, want an end at step 8", i+1, s.err, s.result,
				len(s.losses))
		}
	}
	more := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, func(o *Options) {
		o.EarlyStop = EarlyStop{Metric: "loss", Patience: 3, MinDelta: 1e9}
	})
	if more.err != nil || more.result.Steps != testSteps || more.result.GaveUp != "" {
		t.Errorf("with more patience: got %v, %+v, want %d steps", more.err, more.result, testSteps)
	}
}

// If a run continues with other data, it must forget the best evaluation and the count of earlier evaluations.
func TestEvaluationsOfOtherDataAreForgotten(t *testing.T) {
	dir := t.TempDir()
	change := func(o *Options) { o.EarlyStop = never }
	if s := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, change); s.err != nil ||
		s.result.Steps != 8 || s.result.Best == nil {
		t.Fatalf("got %v, %+v, want an end at step 8", s.err, s.result)
	}
	rec := &recorder{}
	s := start(context.Background(), t, openReference(t), dir, testOptions(), rec, func(o *Options) {
		change(o)
		before := o.Resume.Extra
		if err := Forget(o.Resume); err != nil || o.Resume.Best != nil ||
			string(before[loopKey]) == string(o.Resume.Extra[loopKey]) {
			t.Errorf("got %v, best %v, %s, want that the state alone is changed", err, o.Resume.Best,
				o.Resume.Extra[loopKey])
		}
	})
	if len(rec.evals) == 0 || rec.evals[0].Step != 8 || !rec.evals[0].Best || s.result.Steps != testSteps ||
		s.result.GaveUp != "" {
		t.Errorf("got evaluations %+v, %+v, want that step 8 is evaluated again and counts as the first", rec.evals,
			s.result)
	}
}

func TestRanksGiveUpTogether(t *testing.T) {
	for rank, s := range (crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true,
		dir:    t.TempDir(),
		change: func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { o.EarlyStop = never }}).start(t) {
		if s.err != nil || s.result.Steps != 8 || s.result.GaveUp == "" {
			t.Errorf("rank %d: got %v, %+v, want an end at step 8", rank, s.err, s.result)
		}
	}
}

func TestACheckpointThatOneRankAsksForIsSavedAndTheRunGoesOn(t *testing.T) {
	asked, agreed := make([]int64, 2), make([]int64, 2)
	var savedAt []int64
	ranks := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			o.SaveRequests, o.KeepBest = func() int64 { return asked[rank] }, false
			o.SaveAgreed = func() { agreed[rank]++ }
			rec.after = func(step int64) {
				if rank == 1 && step == 2 {
					asked[1]++ // rank 0 receives the request with the reports of the next step
				}
				if rank == 0 && rec.saved > len(savedAt) { // the checkpoint was saved after the previous step
					savedAt = append(savedAt, step-1)
				}
			}
		}}.start(t)
	for rank, s := range ranks {
		if s.err != nil || s.result.Steps != testSteps {
			t.Fatalf("rank %d: %v, %+v", rank, s.err, s.result)
		}
	}
	if !slices.Equal(savedAt, []int64{3}) || ranks[0].saved != 2 {
		t.Errorf("saved behind steps %v and %d times, want behind 3 and at the end", savedAt, ranks[0].saved)
	}
	if !slices.Equal(agreed, []int64{1, 1}) {
		t.Errorf("the ranks were told %v times that they save because one was asked, want once each", agreed)
	}
	alone, rec := int64(0), &recorder{}
	rec.after = func(step int64) {
		if step == 2 {
			alone = 3 // several requests at the same time must cause one save
		}
	}
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), rec, func(o *Options) {
		o.SaveRequests, o.KeepBest = func() int64 { return alone }, false
	})
	if s.err != nil || s.saved != 2 || s.result.Steps != testSteps {
		t.Errorf("one rank: got %v and %d checkpoints, want 2", s.err, s.saved)
	}
}

func TestTimeEndsARunAndSavesIt(t *testing.T) {
	for rank, s := range (crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true,
		dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			if rank == 0 { // only rank 0 checks the time limit
				o.MaxDuration = time.Nanosecond
			}
		}}).start(t) {
		if s.err != nil || s.result.Steps != 1 || !s.result.OutOfTime || rank == 0 && s.saved != 1 {
			t.Errorf("rank %d: got %v, %+v, %d checkpoints, want an end after step 1", rank, s.err, s.result, s.saved)
		}
	}
	every := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), &recorder{},
		func(o *Options) { o.SaveInterval, o.KeepBest = time.Nanosecond, false })
	if every.err != nil || every.saved != testSteps {
		t.Errorf("checkpoints by time: got %v and %d, want one a step", every.err, every.saved)
	}
}
