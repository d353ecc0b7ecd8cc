package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Many small jumps, such as changes of a clock, must not hide that a large surprise may be a jump.
func TestSmallJumpsDoNotExcludeALargeOne(t *testing.T) {
	const burst, variance = 1.6, 0.001
	var none, small jumps
	for range 100 {
		none.windows++
		small.windows++
	}
	for range 20 {
		small.add(0.1, 1)
	}
	if got, want := small.density(burst, variance), none.density(burst, variance)/2; got < want {
		t.Errorf("got a density of %.2g after jumps of 10 %%, want at least %.2g", got, want)
	}
	if got, least := small.density(0.1, variance), 5*none.density(0.1, variance); got < least {
		t.Errorf("got a density of %.2g for another small jump, want at least %.2g", got, least)
	}
}

// A share in doubt must not teach the rank that its windows have less noise, or more, than they have.
func TestAShareInDoubtDoesNotTeachJitter(t *testing.T) {
	k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: sloped, level: steady, noise: 0.05}
	e := newPosterior(nil, 0, 64)
	play(e, k, 60, 32, 60, 32)
	e.jitter = 0.004
	k.level = func(int) float64 { return 8 }
	play(e, k, 44)
	if play(e, k, 44); math.Abs(e.jitter-0.004) > 0.0005 {
		t.Errorf("got jitter %.4f after a share in doubt, want about 0.004", e.jitter)
	}
}

// A share fills a known tile, and is as much faster as the curve predicts. A surprise beyond that is no evidence for
// the tile a second time.
func TestAKnownTileCountsOnce(t *testing.T) {
	curve := func(n int) float64 {
		if n%8 == 0 {
			return 0.65 * sloped(n)
		}
		return sloped(n)
	}
	k := &source{r: rand.New(rand.NewPCG(5, 4)), curve: curve, level: steady, noise: 0.005}
	e := newPosterior(nil, 0, 128)
	play(e, k, 60, 64, 51, 56, 43, 48, 60, 64, 51)
	tile := 2
	if chance := e.shape.chances[tile]; tiles[tile].period != 8 || chance < 0.9 {
		t.Fatalf("got a probability of %.2f of a tile of %d samples, want at least 0.9 of 8", chance,
			tiles[tile].period)
	}
	faster, slower := e.jumped(24, -0.35, 0.001), e.jumped(24, 0.35, 0.001)
	if math.Abs(math.Log(faster/slower)) > 0.7 {
		t.Errorf("got a probability of %.3f that the level has jumped if the share is faster, and %.3f if it is slower by as much; want about the same",
			faster, slower)
	}
}

// A disturbance begins together with a new share, and an older share is slow, too. The state before the disturbance
// must survive both windows, and the second one must begin the disturbance.
func TestTheStateBeforeASurpriseSurvives(t *testing.T) {
	for _, earlier := range []float64{0, 20} { // jumps: with many, a jump is the most probable cause
		level := 1.0
		k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: sloped, level: func(int) float64 { return level },
			noise: 0.02}
		e := newPosterior(nil, 0, 256)
		for _, n := range []int{60, 32, 60, 32, 60} {
			e.disturbedWindow(k, n, false)
		}
		e.jumps.add(1.1, earlier)
		level = 3
		e.disturbedWindow(k, 44, false)
		if !e.open() {
			t.Fatalf("got a surprise with one cause, want several causes")
		}
		if _, calm := e.learn(&reading{}, 0, 0); calm {
			t.Errorf("got a rank that keeps its state in a window without samples")
		}
		e.disturbedWindow(k, 44, false)
		m := e.read(32, logsOf(k.window(32, 10)), false)
		if !e.update(&m, 0, 0) {
			t.Errorf("%v earlier jumps: got no jump of the level from a slow older share", earlier)
		}
		for n, want := range map[float64]float64{32: sloped(32), 60: sloped(60)} {
			if got, _ := e.before.expect(n); math.Abs(got-math.Log(want)) > 0.05 {
				t.Errorf("%v samples: got %.4f s in the state before the disturbance, want %.4f", n, math.Exp(got),
					want)
			}
		}
		if got := e.jumps.count - earlier; math.Abs(got-1) > 0.1 {
			t.Errorf("%v earlier jumps: got %.2f more, want 1", earlier, got)
		}
	}
}

// A rank keeps a state with an open surprise, and an older share shows during a disturbance that the surprise was no
// jump. After the disturbance, the rank returns to this state, and the older share shows the same again.
func TestASurpriseIsSubtractedFromTheJumpsOnce(t *testing.T) {
	level := 1.0
	curve := func(n int) float64 {
		if n == 44 {
			return 8 * sloped(n)
		}
		return sloped(n)
	}
	k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: curve, level: func(int) float64 { return level }, noise: 0.02}
	e := newPosterior(nil, 0, 256)
	play(e, k, 60, 32, 60, 32, 60)
	e.jumps.add(0.3, 1)
	play(e, k, 44)
	if e.counted < 0.05 {
		t.Fatalf("got a surprise that is a jump with probability %.3f, want at least 0.05", e.counted)
	}
	e.keep()
	level = 1.3
	play(e, k, 32)
	want := e.jumps
	if math.Abs(want.count-1) > 0.01 {
		t.Errorf("got %.3f jumps during the disturbance, want the earlier one", want.count)
	}
	level = 1
	e.restore()
	if play(e, k, 32); e.jumps.count != want.count || e.jumps.squares != want.squares {
		t.Errorf("got %.3f jumps with squares %.3f after the disturbance, want %.3f and %.3f", e.jumps.count,
			e.jumps.squares, want.count, want.squares)
	}
	if d := e.jumps.density(1, 0.01); !(d > 0) {
		t.Errorf("got a density of %v for another jump", d)
	}
}

// While the causes of a surprise are open, a further surprise must not hide that the older shares have moved. A
// surprise that no older share resolves must end.
func TestAnOpenSurpriseStaysOpenAndEnds(t *testing.T) {
	for name, factors := range map[string]map[int]float64{
		"a smaller one follows": {44: 8, 20: 3},
		"a larger one follows":  {44: 4, 20: 12},
	} {
		curve := func(n int) float64 {
			if factor := factors[n]; factor > 0 {
				return factor * sloped(n)
			}
			return sloped(n)
		}
		k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: curve, level: steady, noise: 0.02}
		e := newPosterior(nil, 0, 256)
		play(e, k, 60, 32, 60, 32, 60)
		e.jumps.add(1.5, 3)
		before := e.cells[e.cell(32)].log
		for _, n := range []int{44, 20} {
			play(e, k, n)
			c := e.cells[e.cell(32)]
			if !e.open() || c.was != before || c.log-c.was < leastShift {
				t.Errorf("%s: %d samples: open %v, got an older share that moved from %.3f to %.3f, want from %.3f",
					name, n, e.open(), c.was, c.log, before)
			}
		}
		for range memory + 1 {
			play(e, k, 44)
		}
		if e.open() || e.surprise != 0 {
			t.Errorf("%s: got a surprise of %.2f that does not end", name, e.surprise)
		}
	}
}

// A new share has a time that is far from the curve. An older share then shows whether the level has moved. If it has
// not, the time of the new share must stay uncertain after a slow window, so that the policy tries the share again. The
// second window at the new share must give its usual time, and must not move the times of the other shares.
func TestTheNextMeasurementsShowTheCause(t *testing.T) {
	kink := func(factor float64) func(n int) float64 {
		return func(n int) float64 {
			if n == 44 {
				return factor * sloped(n)
			}
			return sloped(n)
		}
	}
	for name, test := range map[string]struct {
		curve      func(n int) float64
		then, last float64 // levels of the window at the new share, and afterwards
		doubt      float64 // least relative error of the new share after the window at an older share
		jumps      float64
	}{
		"a disturbance":   {sloped, 8, 1, 0.3, 0},
		"a slow share":    {kink(8), 1, 1, 0.3, 0},
		"a fast share":    {kink(0.3), 1, 1, 0, 0},
		"slower for good": {sloped, 8, 8, 0, 1},
		"faster for good": {sloped, 0.3, 0.3, 0, 1},
	} {
		level := 1.0
		k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: test.curve, level: func(int) float64 { return level },
			noise: 0.05}
		e := newPosterior(nil, 0, 64)
		play(e, k, 60, 32, 60, 32)
		level = test.then
		play(e, k, 44)
		level = test.last
		play(e, k, 32)
		if value, variance := e.expect(44); math.Sqrt(variance) < test.doubt {
			t.Errorf("%s: got %.4f s for the new share with a relative error of %.2f, want at least %v", name,
				math.Exp(value), math.Sqrt(variance), test.doubt)
		}
		if math.Abs(e.jumps.count-test.jumps) > 0.01 {
			t.Errorf("%s: got %.2f jumps, want %v", name, e.jumps.count, test.jumps)
		}
		play(e, k, 44)
		t.Run(name, func(t *testing.T) {
			checkTimes(t, e, 0.1, map[int]float64{32: test.last * sloped(32), 44: test.last * test.curve(44),
				60: test.last * sloped(60)})
		})
	}
}

// Noise gives a new share a small surprise, and an older share the same deviation. This is no jump of the level.
func TestASmallSurpriseIsNoJump(t *testing.T) {
	e := newPosterior(nil, 0, 64)
	e.surprise = 0.05
	if older := e.resolve(0.05, false); !older || e.jumps.count != 0 {
		t.Errorf("got older shares that follow: %v, and %.2f jumps; want true and none", older, e.jumps.count)
	}
	e.surprise = 0.4
	if e.resolve(0.4, true); e.jumps.count != 1 {
		t.Errorf("got %.2f jumps after a sure one, want 1", e.jumps.count)
	}
}

// A rank of a large type has the curve of its type. Other work makes it slower while it has a new share. Neither its
// curve nor those of the other ranks may then be far from the truth once it has been measured twice more.
func TestADisturbedWindowDoesNotBendTheCurveOfAType(t *testing.T) {
	const ranks, slow = manyRanks + 16, 5
	m := New(Options{Limits: slices.Repeat([]int{128}, ranks), Active: slices.Repeat([]bool{true}, ranks),
		Interval: 10, Types: slices.Repeat([]string{"one"}, ranks)})
	random := rand.New(rand.NewPCG(3, 99))
	shares := make([]int, ranks)
	for _, of := range []int{60, 32, 60, 32, 60, 44, 60, 44} {
		for r := range shares {
			shares[r] = 60 - r%2*28
		}
		shares[slow] = of
		disturbed := of == 44 && m.windows == 5
		w := &Window{Shares: shares, Seconds: make([][]float64, ranks), Opening: m.windows == 0}
		for r, n := range shares {
			for range 10 {
				s := sloped(n) * math.Exp(0.05*random.NormFloat64())
				if r == slow && disturbed {
					s *= 8
				}
				w.Seconds[r] = append(w.Seconds[r], s)
			}
		}
		m.Learn(w)
		if _, missing := m.Fit(shares, true); missing >= 0 {
			t.Fatalf("rank %d has no curve", missing)
		}
	}
	for r := range ranks {
		for _, n := range []int{32, 44, 60} {
			if got := m.curves.mean[r].At(float64(n)); math.Abs(math.Log(got/sloped(n))) > 0.1 {
				t.Errorf("rank %d: %d samples: got %.4f s, want %.4f", r, n, got, sloped(n))
			}
		}
	}
}
