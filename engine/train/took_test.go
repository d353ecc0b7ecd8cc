package train

import (
	"context"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// slowObserver sleeps between steps, and while it saves. It counts the saves.
type slowObserver struct {
	*recorder
	step, save time.Duration
	saves      int
}

func (o *slowObserver) StepDone(r *StepRecord) {
	o.recorder.StepDone(r)
	time.Sleep(o.step)
}

func (o *slowObserver) Saving() {
	o.saves++
	time.Sleep(o.save)
}

// The times of steps include the work of observers between steps, but no saves. Both bounds hold on a machine of any
// speed.
func TestTrainingTimeHasGapsBetweenStepsButNoPauses(t *testing.T) {
	o := &slowObserver{recorder: &recorder{}, step: 5 * time.Millisecond, save: 30 * time.Millisecond}
	begun := time.Now()
	s := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), o.recorder, func(opts *Options) { opts.Observer, opts.SaveSteps = o, 2 })
	elapsed := time.Since(begun)
	if s.err != nil {
		t.Fatal(s.err)
	}
	sum := Trained{}
	for _, r := range s.steps {
		sum = Trained{sum.Samples + int64(r.Samples), sum.Time + r.Took}
		if r.Trained != sum || r.Took < r.Times.Total() {
			t.Errorf("step %d: got %v for parts of %v, and %+v so far, want %+v", r.Step, r.Took, r.Times.Total(), r.Trained, sum)
		}
	}
	if s.result.Trained != sum || s.result.TrainTime != sum.Time {
		t.Errorf("got %+v and %v in this process, want %+v", s.result.Trained, s.result.TrainTime, sum)
	}
	least, most := time.Duration(len(s.steps)-1)*o.step, elapsed-time.Duration(o.saves)*o.save
	if o.saves < testSteps/2 || sum.Time < least || sum.Time > most {
		t.Errorf("got %v of training and %d saves, want %v to %v", sum.Time, o.saves, least, most)
	}
}

func TestTrainingTimeGoesOnAfterAResume(t *testing.T) {
	dir := t.TempDir()
	first := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, func(opts *Options) { opts.Steps = 6 })
	second := start(context.Background(), t, openReference(t), dir, testOptions(), &recorder{}, nil)
	if first.err != nil || second.err != nil {
		t.Fatal(first.err, second.err)
	}
	before, after := first.result.Trained, second.steps[0]
	if want := (Trained{before.Samples + int64(after.Samples), before.Time + after.Took}); before.Time <= 0 || after.Trained != want {
		t.Errorf("step %d: got %+v, want %+v", after.Step, after.Trained, want)
	}
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	other := start(context.Background(), t, openReference(t), t.TempDir(), testOptions(), &recorder{}, func(opts *Options) {
		opts.Resume, opts.Foreign, opts.Steps = &c.State, true, testSteps+2
	})
	if other.err != nil || other.result.Trained != (Trained{other.result.Samples, other.result.TrainTime}) || len(other.steps) != 2 {
		t.Errorf("from a checkpoint of another run: got %v, %d steps and %+v, want the 2 own steps", other.err, len(other.steps), other.result.Trained)
	}
}
