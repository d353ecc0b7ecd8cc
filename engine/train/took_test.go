package train

import (
	"context"
	"testing"
	"time"
)

// slowObserver sleeps after each step and in every pause. It counts the pauses.
type slowObserver struct {
	*recorder
	step, pause time.Duration
	pauses      int
}

func (o *slowObserver) StepDone(r *StepRecord) {
	o.recorder.StepDone(r)
	time.Sleep(o.step)
}

func (o *slowObserver) rest() {
	o.pauses++
	time.Sleep(o.pause)
}

func (o *slowObserver) Saving() { o.rest() }

func (o *slowObserver) EvalDone(e Evaluation) {
	o.recorder.EvalDone(e)
	o.rest()
}

func (o *slowObserver) RolledBack(step int64) {
	o.recorder.RolledBack(step)
	o.rest()
}

// The times of steps must include the work of observers between steps, but not the pauses. All bounds hold on a machine
// of any speed.
func TestTrainingTimeHasGapsBetweenStepsButNoPauses(t *testing.T) {
	for name, c := range map[string]struct {
		ranks  int
		pauses int // least number of pauses
		change func(*Options, *slowObserver)
	}{
		"no pauses but the end": {1, 1, func(o *Options, _ *slowObserver) { o.Eval = nil }},
		"a save after every second step": {1, testSteps / 2, func(o *Options, _ *slowObserver) {
			o.Eval, o.SaveSteps = nil, 2
		}},
		"a save after every step": {1, testSteps, func(o *Options, _ *slowObserver) {
			o.Eval, o.SaveSteps = nil, 1
		}},
		"saves in the background": {1, testSteps, func(o *Options, _ *slowObserver) {
			o.Eval, o.SaveSteps, o.Beside = nil, 1, true
		}},
		"evaluations": {1, 3, func(*Options, *slowObserver) {}},
		"work before every step": {1, testSteps, func(o *Options, slow *slowObserver) {
			o.BeforeStep = func(int64) { slow.rest() }
		}},
		"comparisons of two ranks": {2, 3, func(o *Options, _ *slowObserver) { o.CompareSteps = 1 }},
		"three ranks, saves, evaluations": {3, testSteps, func(o *Options, _ *slowObserver) {
			o.CompareSteps, o.SaveSteps = 2, 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			slow := make([]*slowObserver, c.ranks)
			change := func(rank int, o *Options, rec *recorder) {
				slow[rank] = &slowObserver{recorder: rec, step: 5 * time.Millisecond, pause: 20 * time.Millisecond}
				o.Observer = slow[rank]
				c.change(o, slow[rank])
			}
			begun := time.Now()
			s := startRanks(t, c.ranks, change)[0]
			elapsed := time.Since(begun)
			if s.err != nil {
				t.Fatal(s.err)
			}
			sum, gaps := Trained{}, time.Duration(0)
			for _, r := range s.steps {
				sum = Trained{sum.Steps + 1, sum.Samples + int64(r.Samples), sum.Time + r.Took}
				gaps += r.Took - r.Times.Total()
				if r.Trained != sum || r.Took < r.Times.Total() {
					t.Errorf("step %d: got %v for parts of %v, and %+v so far, want %+v", r.Step, r.Took,
						r.Times.Total(), r.Trained, sum)
				}
			}
			if s.result.Trained != sum || s.result.TrainTime != sum.Time {
				t.Errorf("got %+v and %v in this process, want %+v", s.result.Trained, s.result.TrainTime, sum)
			}
			if least := time.Duration(len(s.steps)-1) * slow[0].step; len(s.steps) != testSteps || gaps < least {
				t.Errorf("got %v between %d steps, want at least %v: the work of observers counts", gaps, len(s.steps),
					least)
			}
			if most := elapsed - time.Duration(slow[0].pauses)*slow[0].pause; slow[0].pauses < c.pauses ||
				sum.Time > most {
				t.Errorf("got %v of training and %d pauses, want at most %v and at least %d pauses", sum.Time,
					slow[0].pauses, most, c.pauses)
			}
		})
	}
}

func TestTrainingTimeCountsStepsThatARollBackRepeatsOnce(t *testing.T) {
	rec, heal := &recorder{}, func() {}
	slow := &slowObserver{recorder: rec, step: 5 * time.Millisecond, pause: 20 * time.Millisecond}
	begun := time.Now()
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), rec, func(o *Options) {
		o.Eval, o.SaveSteps, o.Observer = nil, 1, slow
		rec.after = func(step int64) {
			if step == 4 && len(rec.steps) == 4 {
				heal = poison(t, o.Replica)
			}
			if step == 6 {
				heal()
			}
		}
	})
	elapsed := time.Since(begun)
	if s.err != nil || s.result.RollBacks != 1 || len(rec.steps) != testSteps+2 {
		t.Fatalf("got %v, %d roll-backs and %d steps, want 1 and %d", s.err, s.result.RollBacks, len(rec.steps),
			testSteps+2)
	}
	all, gaps := Trained{}, time.Duration(0)
	for _, r := range rec.steps {
		all = Trained{all.Steps + 1, all.Samples + int64(r.Samples), all.Time + r.Took}
		gaps += r.Took - r.Times.Total()
	}
	repeated := rec.steps[4].Took + rec.steps[5].Took // steps 5 and 6, before the return to step 4
	if got, want := s.result.Trained, (Trained{testSteps, testSteps * testBatch, all.Time - repeated}); got != want {
		t.Errorf("got %+v for the run, want %+v", got, want)
	}
	if r := s.result; r.TrainTime != all.Time || r.Samples != all.Samples {
		t.Errorf("got %v and %d samples in this process, want %+v", r.TrainTime, r.Samples, all)
	}
	least, most := time.Duration(len(rec.steps)-1)*slow.step, elapsed-time.Duration(slow.pauses)*slow.pause
	if gaps < least || all.Time > most {
		t.Errorf("got %v between steps and %v of training, want at least %v and at most %v", gaps, all.Time, least,
			most)
	}
}

func TestTrainingTimeGoesOnAfterAResume(t *testing.T) {
	dir := t.TempDir()
	first := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, func(opts *Options) {
		opts.Steps = 6
	})
	second := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, nil)
	if first.err != nil || second.err != nil {
		t.Fatal(first.err, second.err)
	}
	before, after := first.result.Trained, second.steps[0]
	if want := (Trained{before.Steps + 1, before.Samples + int64(after.Samples),
		before.Time + after.Took}); before.Time <= 0 || after.Trained != want {
		t.Errorf("step %d: got %+v, want %+v", after.Step, after.Trained, want)
	}
	c := newest(t, dir)
	other := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), &recorder{},
		func(opts *Options) {
			opts.Resume, opts.Foreign, opts.Steps = &c.State, true, testSteps+2
		})
	if other.err != nil || other.result.Trained != (Trained{2, other.result.Samples, other.result.TrainTime}) ||
		len(other.steps) != 2 {
		t.Errorf("from a checkpoint of another run: got %v, %d steps and %+v, want the 2 own steps", other.err,
			len(other.steps), other.result.Trained)
	}
}
