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
	calm := e.agrees(&m, 0)
	jumped := e.update(&m, 0, 0)
	if e.away++; calm && !jumped && !e.open() && !disturbed {
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
// show the end of the disturbance. In that state, an earlier share would be faster, so the rank tries the state. If it
// is wrong, the rank returns to the other state.
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
		factor = 1.8 // the other state is right after all
		e.disturbedWindow(k, 250, true)
		e.disturbedWindow(k, 250, true)
		checkTimes(t, e, 0.05, map[int]float64{120: 1.8 * sloped(120), 256: 1.8 * sloped(256)})
	}
}

// Other work makes a rank slower while it has a new share. The older share then has its earlier time. The time of the
// new share must stay uncertain, so that the policy tries the share again. A second window, without other work, must
// then give its usual time, and must not make other shares faster. On a curve with a kink, the second window agrees
// with the first one, and the time of the share is known.
func TestAShareOfADisturbedWindowStaysInDoubt(t *testing.T) {
	kink := func(n int) float64 {
		if n == 44 {
			return 8 * sloped(n)
		}
		return sloped(n)
	}
	for name, test := range map[string]struct {
		curve func(n int) float64
		level float64
	}{"disturbed": {sloped, 8}, "a kink": {kink, 1}} {
		level := 1.0
		k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: test.curve, level: func(int) float64 { return level },
			noise: 0.05}
		e := newPosterior(nil, 0, 64)
		play(e, k, 60, 32, 60, 32)
		level = test.level
		play(e, k, 44)
		level = 1
		play(e, k, 32)
		if value, variance := e.expect(44); math.Sqrt(variance) < 0.3 {
			t.Errorf("%s: got %.4f s for the new share with a relative error of %.2f, want at least 0.3", name,
				math.Exp(value), math.Sqrt(variance))
		}
		play(e, k, 44)
		t.Run(name, func(t *testing.T) {
			checkTimes(t, e, 0.1, map[int]float64{32: sloped(32), 44: test.curve(44), 60: sloped(60)})
		})
	}
}
