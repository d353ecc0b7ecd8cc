package balancer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// estimated makes an estimate from exact times, each believed with a standard deviation sigma (a fraction).
func estimated(sigma float64, times map[float64]float64) *estimate {
	e := &estimate{current: 0, belief: &beforehand}
	for samples, seconds := range times {
		e.add(samples, math.Log(seconds), sigma*sigma)
	}
	for i := range e.cells {
		e.cells[i].slower = true
	}
	return e
}

func TestFitReproducesALine(t *testing.T) {
	line := func(samples float64) float64 { return 0.03 + 0.002*samples }
	times := map[float64]float64{}
	for _, samples := range []float64{16, 40, 64, 100} {
		times[samples] = line(samples)
	}
	f := estimated(0.002, times).fit(64)
	for _, test := range []struct{ samples, off float64 }{{16, 0.005}, {30, 0.005}, {64, 0.002}, {80, 0.005}, {150, 0.02}, {200, 0.03}, {8, 0.03}} {
		if got := f.mean(test.samples); math.Abs(got/line(test.samples)-1) > test.off {
			t.Errorf("%v samples: got %.5f s, want %.5f within %v", test.samples, got, line(test.samples), test.off)
		}
	}
}

func TestFitReproducesAStep(t *testing.T) {
	step := func(samples float64) float64 { return 0.01 + 0.05*math.Ceil(samples/32) }
	times := map[float64]float64{}
	for _, samples := range []float64{24, 32, 33, 48, 64, 65, 80} {
		times[samples] = step(samples)
	}
	f := estimated(0.002, times).fit(64)
	for samples := range times {
		if got := f.mean(samples); math.Abs(got/step(samples)-1) > 0.01 {
			t.Errorf("%v samples: got %.5f s, want %.5f", samples, got, step(samples))
		}
	}
	c, _ := f.curves(96, 0)
	if flat := c.At(63) / c.At(50); flat > 1.02 {
		t.Errorf("between 50 and 63 samples the time grows by a factor of %.3f, want it flat", flat)
	}
	if up := c.At(65) / c.At(64); up < 1.3 {
		t.Errorf("from 64 to 65 samples the time grows by a factor of %.3f, want 1.45", up)
	}
}

func TestFitKnowsLittleOfOneShare(t *testing.T) {
	f := estimated(0.002, map[float64]float64{64: 0.1}).fit(64)
	if got := f.mean(64); math.Abs(got-0.1) > 1e-4 {
		t.Errorf("at the share itself got %v s, want 0.1", got)
	}
	if got := f.mean(128); got < 0.15 || got > 0.2 { // mostly in proportion
		t.Errorf("at twice the share got %v s, want 0.15 to 0.2", got)
	}
	near, at, far := f.sigma(80), f.sigma(64), f.sigma(256)
	if !(at < near && near < far) || at > 0.0005 || far < 0.02 {
		t.Errorf("got standard deviations %v s at the share, %v near it, %v far from it", at, near, far)
	}
}

func TestFitGetsSurerWithData(t *testing.T) {
	var ratios []float64
	for seed := range uint64(100) {
		k, e := newRank(seed, 0.03), newEstimate(nil, 256)
		at := 1 + int(seed*37%256)
		e.measure(at, k.window(at, 10))
		first := e.fit(float64(at)).sigma(float64(at))
		for range 20 {
			e.measure(at, k.window(at, 10))
		}
		ratios = append(ratios, e.fit(float64(at)).sigma(float64(at))/first)
	}
	// 21 windows would bring 1/sqrt(21) = 0.22; what is known fades, and what one window says of the noise is itself uncertain.
	if middle, most := median(ratios), slices.Max(ratios); middle > 0.4 || most > 0.9 {
		t.Errorf("after 20 more windows the standard deviation is %.2f of what it was, at most %.2f, want 0.4 and 0.9", middle, most)
	}
}

func TestFitOutlivesContradictions(t *testing.T) {
	for _, times := range []map[float64]float64{
		{1: 1e9, 2: 1e-9, 3: 1e9},
		{1: 1e-9, 1e6: 1e9},
		{1e6: 1e-9, 1e6 + 1: 1e9, 1e6 + 2: 1e-9},
	} {
		for _, b0 := range []float64{1, 2, 1e6} {
			f := estimated(1e-6, times).fit(b0)
			if f == nil {
				t.Errorf("%v: no fit around %v", times, b0)
			} else if c, _ := f.curves(10, 0); c.Check() != nil || !c.turnsOnce() {
				t.Errorf("%v around %v: got curve %v", times, b0, c)
			}
		}
	}
}

func TestCurvesOfFitsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newRank(rapid.Uint64().Draw(t, "seed"), rapid.Float64Range(0, 0.3).Draw(t, "noise"))
		e := newEstimate(nil, 256)
		for range rapid.IntRange(1, 30).Draw(t, "windows") {
			samples := rapid.IntRange(1, 256).Draw(t, "samples")
			e.measure(samples, k.window(samples, rapid.IntRange(1, 12).Draw(t, "steps")))
		}
		limit := rapid.IntRange(1, 400).Draw(t, "limit")
		b0 := float64(rapid.IntRange(1, 256).Draw(t, "b0"))
		c, _ := e.fit(b0).curves(limit, 0)
		if err := c.Check(); err != nil || !c.turnsOnce() || c[0].Samples != 1 || c[len(c)-1].Samples < float64(limit) {
			t.Fatalf("limit %d: got curve %v (%v)", limit, c, err)
		}
		if len(c) > 3*mostCells+40 {
			t.Fatalf("got %d points", len(c))
		}
		checkInverses(t, c.ascent(), limit, c[len(c)-1].Seconds)
	})
}

func TestCurvesAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Curve
		samples, seconds := 0.0, rapid.Float64Range(0, 1).Draw(t, "first")
		for range rapid.IntRange(1, 6).Draw(t, "points") {
			samples += rapid.Float64Range(0.01, 30).Draw(t, "further")
			seconds += rapid.SampledFrom([]float64{0, 0, 0.001, 0.5, 3}).Draw(t, "longer")
			c = append(c, Point{samples, seconds})
		}
		checkInverses(t, c, rapid.IntRange(1, 120).Draw(t, "limit"), 1.2*seconds+1)
	})
}

// checkInverses holds most and inverse of a rising curve against At, up to a time.
func checkInverses(t *rapid.T, c Curve, limit int, upTo float64) {
	t.Helper()
	for range 5 {
		seconds := upTo * rapid.Float64Range(0, 1).Draw(t, "seconds")
		n := c.most(seconds, limit)
		if n < 0 || n > limit || n > 0 && c.At(float64(n)) > seconds || n < limit && c.At(float64(n+1)) <= seconds {
			t.Fatalf("%v: most(%v, %d) = %d, which takes %v s, one more %v s", c, seconds, limit, n, c.At(float64(n)), c.At(float64(n+1)))
		}
		x := c.inverse(seconds, float64(limit))
		if x < 0 || x > float64(limit) || n > 0 && x < float64(n)*(1-1e-9) || c.At(x) > seconds*(1+1e-9)+1e-12 {
			t.Fatalf("%v: inverse(%v, %d) = %v, which takes %v s; %d whole samples fit", c, seconds, limit, x, c.At(x), n)
		}
		if above := x*(1+1e-6) + 1e-6; above < float64(limit) && x > 0 && c.At(above) < seconds {
			t.Fatalf("%v: inverse(%v, %d) = %v, but %v take %v s", c, seconds, limit, x, above, c.At(above))
		}
	}
}

func TestOutlineKeepsTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		corners := rapid.IntRange(2, 6).Draw(t, "corners")
		var truth Curve
		for i := range corners {
			truth = append(truth, Point{float64(1 + 50*i), float64(1+i) + rapid.Float64Range(0, 0.9).Draw(t, "seconds")})
		}
		var fine Curve
		for samples := 1.0; samples <= truth[corners-1].Samples; samples++ {
			fine = append(fine, Point{samples, truth.At(samples)})
		}
		got := fine.outline(priorCells)
		if err := got.Check(); err != nil || len(got) > priorCells {
			t.Fatalf("got %v (%v)", got, err)
		}
		for _, p := range fine {
			if at := got.At(p.Samples); math.Abs(at/p.Seconds-1) > 0.02 {
				t.Fatalf("at %v samples the outline %v of %v has %v s, want %v", p.Samples, got, truth, at, p.Seconds)
			}
		}
	})
}

// A rank that was measured slower with fewer samples, by far more than noise explains, is known to be; by less it is not.
func TestFitKnowsWhereACurveFalls(t *testing.T) {
	for name, test := range map[string]struct {
		sigma float64
		times map[float64]float64
		want  float64 // share in the valley
	}{
		"a fall":             {0.01, map[float64]float64{1: 0.21, 8: 0.21, 32: 0.14, 64: 0.142, 128: 0.55}, 32},
		"a fall to the end":  {0.01, map[float64]float64{8: 0.21, 32: 0.14}, 32},
		"a fall in noise":    {0.2, map[float64]float64{1: 0.21, 8: 0.21, 32: 0.14, 64: 0.142, 128: 0.55}, 1},
		"a fall of 2 %":      {0.001, map[float64]float64{8: 0.143, 32: 0.14, 64: 0.25}, 1},
		"a rise":             {0.01, map[float64]float64{8: 0.05, 32: 0.14, 64: 0.25}, 1},
		"a dip after a rise": {0.01, map[float64]float64{8: 0.05, 32: 0.25, 64: 0.14}, 1},
	} {
		curve, off := estimated(test.sigma, test.times).fit(8).curves(200, 1)
		for _, c := range []Curve{curve, off} {
			if got := c.ascent()[0].Samples; got != test.want || !c.turnsOnce() {
				t.Errorf("%s: got the valley at %v samples, want %v: %v", name, got, test.want, c)
			}
		}
	}
}

// What 100 ranks show counts more than what is believed beforehand, and a rank whose cells leave it open is fitted as the others are.
func TestBendsAreLearntFromAllRanks(t *testing.T) {
	staircase := func(b float64) float64 { return 0.01 + 0.001*8*math.Ceil(b/8) }
	line := func(b float64) float64 { return 0.01 + 0.001*b }
	for name, test := range map[string]struct {
		seconds func(b float64) float64
		bent    bool
	}{"tiles": {staircase, true}, "lines": {line, false}} {
		var fits []*fitted
		for range 100 {
			e := newEstimate(nil, 256)
			for i, b := range []float64{40, 41, 48, 49, 56, 57, 64, 65} {
				e.update(b, math.Log(test.seconds(b)*(1+0.002*float64(i%3-1))), 1e-5)
			}
			fits = append(fits, e.fit(56))
		}
		b := beforehand
		b.learn(fits)
		likeliest, sum := 0, 0.0
		for i := range b {
			sum += b[i]
			if b[i] > b[likeliest] {
				likeliest = i
			}
		}
		if math.Abs(sum-1) > 1e-9 || (bends[likeliest].sigma >= 0.1) != test.bent {
			t.Errorf("%s: got %v, which adds up to %v: most likely a bend of %v", name, b, sum, bends[likeliest].sigma)
		}
		few := newEstimate(nil, 256)
		for _, b := range []float64{40, 48, 49} {
			few.update(b, math.Log(staircase(b)), 1e-3)
		}
		alone := few.fit(56)
		if mean := alone.chances.mean(); alone.bend != mean || mean <= bends[0].sigma || mean >= bends[len(bends)-1].sigma {
			t.Errorf("%s: got a bend of %v, want the expected one, %v", name, alone.bend, mean)
		}
		if few.belief = &b; alone.bend >= 0.1 || (few.fit(56).bend >= 0.1) != test.bent {
			t.Errorf("%s: a rank of three shares: got a bend of %v alone, %v among the others", name, alone.bend, few.fit(56).bend)
		}
	}
}
