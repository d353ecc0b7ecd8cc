package observe

import (
	"testing"
	"time"
)

func TestETAFollowsSteadyTimesAndNotSingleSlowSteps(t *testing.T) {
	const step = 100 * time.Millisecond
	var e eta
	e.stepTook(5 * time.Second) // the first step is slow because it loads code
	if got := e.left(10, 0); got != 50*time.Second {
		t.Errorf("after the first step: got %v, want what is known so far, 50s", got)
	}
	for range 200 {
		e.stepTook(step)
	}
	before := e.left(1000, 0)
	if before < 99*time.Second || before > 101*time.Second {
		t.Fatalf("after equal steps: got %v, want about 100s", before)
	}
	e.stepTook(10 * step)
	if after := e.left(1000, 0); after > before*120/100 {
		t.Errorf("after one step that took ten times as long: got %v, before %v", after, before)
	}
	for range 300 {
		e.stepTook(2 * step)
	}
	if got := e.left(1000, 0); got < 195*time.Second || got > 205*time.Second {
		t.Errorf("after the steps have become twice as long: got %v, want about 200s", got)
	}
	e.evalTook(3 * time.Second)
	if got := e.left(0, 2); got != 6*time.Second {
		t.Errorf("two evaluations: got %v, want 6s", got)
	}
}

func TestEvaluationsLeft(t *testing.T) {
	for _, c := range []struct{ step, total, interval, want int64 }{
		{0, 100, 10, 10}, {9, 100, 10, 10}, {10, 100, 10, 9}, {95, 100, 10, 1}, {100, 100, 10, 0}, {0, 95, 10, 10},
		{91, 95, 10, 1}, {5, 95, 0, 0},
	} {
		if got := evaluationsLeft(c.step, c.total, c.interval); got != c.want {
			t.Errorf("step %d of %d, each %d: got %d, want %d", c.step, c.total, c.interval, got, c.want)
		}
	}
}
