package optim

import (
	"math"
	"testing"
)

func TestLossScaleOfACheckpointIsChecked(t *testing.T) {
	l := NewLossScale()
	for _, c := range []struct {
		scale float64
		good  int64
	}{{0, 0}, {-2, 0}, {3, 0}, {0.5, 0}, {1 << 25, 0}, {math.NaN(), 0}, {math.Inf(1), 0}, {2, -1}, {2, growthSteps}} {
		if err := l.Set(c.scale, c.good); err == nil {
			t.Errorf("scale %v after %d steps: got no error", c.scale, c.good)
		}
	}
	if err := l.Set(1024, 7); err != nil || *l != (LossScale{1024, 7}) {
		t.Errorf("got %v, %v, want 1024 after 7", *l, err)
	}
}

func TestLossScaleFollowsTheGradients(t *testing.T) {
	l := NewLossScale()
	step := func(finite, lowered bool, scale float64) {
		t.Helper()
		if got := l.Update(finite); got != lowered || l.Scale != scale {
			t.Fatalf("finite %v: got %v, scale %v, want %v, %v", finite, got, l.Scale, lowered, scale)
		}
	}
	step(false, true, 1<<15)
	for range growthSteps - 1 {
		step(true, false, 1<<15)
	}
	step(false, true, 1<<14) // the count of good steps begins again
	for range growthSteps - 1 {
		step(true, false, 1<<14)
	}
	step(true, false, 1<<15)
	for want := float64(1 << 14); want >= 1; want /= 2 {
		step(false, true, want)
	}
	step(false, false, 1) // at scale 1, the scale cannot be the cause
	for range 30 * growthSteps {
		l.Update(true)
	}
	if l.Scale != mostScale {
		t.Errorf("after good steps without end: got %v, want %v", l.Scale, float64(mostScale))
	}
}
