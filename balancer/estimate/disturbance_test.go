package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// disturbedWindow simulates one window of a rank in the way of [hybrid.learn]. disturbed states whether a disturbance
// lasts. It reports whether the rank returned to its state before the disturbance.
func (e *posterior) disturbedWindow(k *source, samples int, disturbed bool) (returned bool) {
	m := e.read(samples, logsOf(k.window(samples, 10)), false)
	if disturbed && e.ended(&m, 0) {
		e.restore()
		e.compare(&m)
		returned = true
	}
	_, calm := e.learn(&m, 0, 0)
	if e.away++; calm && !disturbed {
		e.keep()
	}
	e.fit(float64(samples))
	return returned
}

// A disturbance begins and ends while the share changes, so no share is measured both during it and after it. Two
// readings that agree with the curve from before the disturbance show its end.
func TestARankReturnsToItsStateBeforeADisturbance(t *testing.T) {
	factor := 1.0
	k := &source{r: rand.New(rand.NewPCG(1, 2)), curve: sloped, level: func(int) float64 { return factor }, noise: 0.01}
	e := newPosterior(nil, 0, 512)
	for _, n := range []int{240, 270, 256, 256, 248, 256} {
		e.disturbedWindow(k, n, false)
	}
	factor = 1.8
	for _, n := range []int{256, 232, 220} {
		if e.disturbedWindow(k, n, true) {
			t.Fatalf("%d samples: got a rank that returned during the disturbance", n)
		}
	}
	factor = 1
	for i, n := range []int{210, 214} {
		if got, want := e.disturbedWindow(k, n, true), i == 1; got != want {
			t.Errorf("window %d after the disturbance: got returned %v, want %v", i+1, got, want)
		}
	}
	checkTimes(t, e, 0.03, map[int]float64{256: sloped(256), 240: sloped(240), 214: sloped(214)})
}

// A level that stays, or that passes its earlier value only once, must not count as a return.
func TestARankStaysAtALevelThatLasts(t *testing.T) {
	for name, factors := range map[string][]float64{
		"lasts":  {1.8, 1.8, 1.8, 1.8, 1.8, 1.8},
		"passes": {1.8, 1, 0.6, 0.6, 0.6, 0.6},
	} {
		factor := 1.0
		k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: sloped, level: func(int) float64 { return factor },
			noise: 0.01}
		e := newPosterior(nil, 0, 512)
		for _, n := range []int{240, 270, 256, 256, 248, 256} {
			e.disturbedWindow(k, n, false)
		}
		for i, n := range []int{256, 232, 240, 256, 256, 256} {
			factor = factors[i]
			if e.disturbedWindow(k, n, true) {
				t.Errorf("level %s: window %d: got a rank that returned to its state before", name, i)
			}
		}
		if got, want := math.Exp(e.cells[e.cell(256)].log), factor*sloped(256); math.Abs(math.Log(got/want)) > 0.02 {
			t.Errorf("level %s: got %.4f s for 256 samples, want %.4f", name, got, want)
		}
	}
}

// A state that was kept must not change with the rank.
func TestAKeptStateIsACopy(t *testing.T) {
	k := &source{r: rand.New(rand.NewPCG(5, 6)), curve: sloped, level: steady, noise: 0.01}
	e := newPosterior(nil, 0, 512)
	for _, n := range []int{100, 120, 140} {
		e.disturbedWindow(k, n, false)
	}
	want, doubt := e.before.expect(130)
	for range 2 { // the second time, the rank shares its cells with no other state either
		for _, n := range []int{60, 130, 200} {
			e.disturbedWindow(k, n, true)
		}
		if got, d := e.before.expect(130); got != want || d != doubt {
			t.Errorf("got a prediction of %v with a variance of %v, want %v and %v", got, d, want, doubt)
		}
		e.restore()
	}
}

// The disturbed rank gets a share far from its measured shares. The earlier state predicts this share too vaguely to
// show the end of the disturbance. In that state, an earlier share would be faster, so the rank tries the state.
func TestARankTriesTheStateBeforeADisturbance(t *testing.T) {
	for name, end := range map[string]bool{"disturbance ended": true, "disturbance lasts": false} {
		factor := 1.0
		k := &source{r: rand.New(rand.NewPCG(7, 8)), curve: sloped, level: func(int) float64 { return factor },
			noise: 0.01}
		e := newPosterior(nil, 0, 512)
		for _, n := range []int{240, 270, 256, 256, 248, 256} {
			e.disturbedWindow(k, n, false)
		}
		factor = 1.8
		e.disturbedWindow(k, 256, true)
		if end {
			factor = 1
		}
		e.disturbedWindow(k, 120, true)
		m := e.read(120, logsOf(k.window(120, 10)), false)
		if got := e.mayEnd(&m, 0); got != end {
			t.Fatalf("%s: got %v from a reading of a share that is far from the earlier ones", name, got)
		}
		if !end {
			continue
		}
		e.try()
		e.update(&m, 0, 0)
		e.fit(120)
		checkTimes(t, e, 0.05, map[int]float64{256: sloped(256)})
	}
}

// A rank becomes slow for good with large shares only. The time of a small share makes it try the state before. Large
// shares show that this state is wrong, so the rank must return to the other state, in which both times are right.
func TestARankReturnsFromAStateThatIsWrong(t *testing.T) {
	slow := false
	curve := func(n int) float64 {
		if slow && n > 200 {
			return 1.8 * sloped(n)
		}
		return sloped(n)
	}
	k := &source{r: rand.New(rand.NewPCG(7, 8)), curve: curve, level: steady, noise: 0.01}
	e := newPosterior(nil, 0, 512)
	for _, n := range []int{240, 270, 256, 256, 248, 256} {
		e.disturbedWindow(k, n, false)
	}
	slow = true
	e.disturbedWindow(k, 256, true)
	e.disturbedWindow(k, 120, true)
	m := e.read(120, logsOf(k.window(120, 10)), false)
	if !e.mayEnd(&m, 0) {
		t.Fatal("got a rank that does not try the state before the disturbance")
	}
	e.try()
	e.update(&m, 0, 0)
	e.fit(120)
	for i := range 2 {
		if got, want := e.disturbedWindow(k, 256, true), i == 1; got != want {
			t.Errorf("window %d after the wrong state: got returned %v, want %v", i+1, got, want)
		}
	}
	checkTimes(t, e, 0.05, map[int]float64{120: curve(120), 256: curve(256)})
}
