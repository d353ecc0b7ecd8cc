package estimate

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// estimated returns a rank whose cells have the given times, each with a standard deviation of sigma (a fraction).
func estimated(sigma float64, times map[float64]float64) *posterior {
	e := newPosterior(nil, 0, 256)
	shares := slices.Sorted(maps.Keys(times))
	for _, samples := range shares {
		e.add(samples, math.Log(times[samples]), sigma*sigma)
	}
	return e
}

func TestShapeReproducesALine(t *testing.T) {
	line := func(samples float64) float64 { return 0.03 + 0.002*samples }
	times := map[float64]float64{}
	for _, samples := range []float64{16, 40, 64, 100} {
		times[samples] = line(samples)
	}
	f := estimated(0.002, times).fit(64)
	for _, test := range []struct{ samples, off float64 }{{16, 0.005}, {30, 0.005}, {64, 0.002}, {80, 0.005},
		{150, 0.02}, {200, 0.03}, {8, 0.03}} {
		if got := f.mean(test.samples); math.Abs(got/line(test.samples)-1) > test.off {
			t.Errorf("%v samples: got %.5f s, want %.5f within %v", test.samples, got, line(test.samples), test.off)
		}
	}
}

func TestShapeReproducesAStep(t *testing.T) {
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

func TestShapeKnowsLittleOfOneShare(t *testing.T) {
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

func TestShapeGetsSurerWithData(t *testing.T) {
	var ratios []float64
	for seed := range uint64(100) {
		k, e := newRank(seed, 0.03), newPosterior(nil, 0, 256)
		at := 1 + int(seed*37%256)
		e.measure(at, k.window(at, 10))
		first := e.fit(float64(at)).sigma(float64(at))
		for range 20 {
			e.measure(at, k.window(at, 10))
		}
		ratios = append(ratios, e.fit(float64(at)).sigma(float64(at))/first)
	}
	// 21 equal windows would give 1/sqrt(21) = 0.22. The estimate gives old windows less weight, and its noise is not
	// exact.
	if middle, most := stat.Median(ratios), slices.Max(ratios); middle > 0.4 || most > 0.9 {
		t.Errorf("after 20 more windows the standard deviation is %.2f of what it was, at most %.2f, want 0.4 and 0.9",
			middle, most)
	}
}

func TestShapeOutlivesContradictions(t *testing.T) {
	for _, times := range []map[float64]float64{
		{1: 1e9, 2: 1e-9, 3: 1e9},
		{1: 1e-9, 1e6: 1e9},
		{1e6: 1e-9, 1e6 + 1: 1e9, 1e6 + 2: 1e-9},
	} {
		for _, b0 := range []float64{1, 2, 1e6} {
			f := estimated(1e-6, times).fit(b0)
			if f == nil {
				t.Errorf("%v: no fit around %v", times, b0)
			} else if c, _ := f.curves(10, 0); c.Check() != nil {
				t.Errorf("%v around %v: %v", times, b0, c.Check())
			}
		}
	}
}

func TestCurvesOfFitsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newRank(rapid.Uint64().Draw(t, "seed"), rapid.Float64Range(0, 0.3).Draw(t, "noise"))
		e := newPosterior(nil, 0, 256)
		for range rapid.IntRange(1, 30).Draw(t, "windows") {
			samples := rapid.IntRange(1, 256).Draw(t, "samples")
			e.measure(samples, k.window(samples, rapid.IntRange(1, 12).Draw(t, "steps")))
		}
		limit := rapid.IntRange(1, 400).Draw(t, "limit")
		b0 := float64(rapid.IntRange(1, 256).Draw(t, "b0"))
		c, _ := e.fit(b0).curves(limit, 0)
		if err := c.Check(); err != nil || c[0].Samples != 1 || c[len(c)-1].Samples < float64(limit) {
			t.Fatalf("limit %d: got a curve from %v to %v (%v)", limit, c[0].Samples, c[len(c)-1].Samples, err)
		}
		if !e.shape.jagged() && (!turnsOnce(c) || len(c) > 3*mostShares+40) {
			t.Fatalf("without tiles got %d points, turns once: %v", len(c), turnsOnce(c))
		}
	})
}

func TestShapeKnowsWhereACurveFalls(t *testing.T) {
	for name, test := range map[string]struct {
		sigma float64
		times map[float64]float64
		want  float64 // share in the valley; 0: the curve rises
	}{
		"a fall":             {0.01, map[float64]float64{1: 0.21, 8: 0.21, 32: 0.14, 64: 0.142, 128: 0.55}, 32},
		"a fall in noise":    {0.2, map[float64]float64{1: 0.21, 8: 0.21, 32: 0.14, 64: 0.142, 128: 0.55}, 0},
		"a fall of 2 %":      {0.001, map[float64]float64{8: 0.143, 32: 0.14, 64: 0.25}, 0},
		"a rise":             {0.01, map[float64]float64{8: 0.05, 32: 0.14, 64: 0.25}, 0},
		"a dip after a rise": {0.01, map[float64]float64{8: 0.05, 32: 0.25, 64: 0.14}, 0},
	} {
		if got := estimated(test.sigma, test.times).fit(8).parts[0].valley; got != test.want {
			t.Errorf("%s: got the valley at %v samples, want %v", name, got, test.want)
		}
	}
}

// Other ranks can make a tile probable that this rank certainly does not have. The smooth curve then explains the
// times, although it was improbable before.
func TestTheTimesExcludeAProbableTile(t *testing.T) {
	times := map[float64]float64{1: 0.214, 16: 0.207, 33: 0.143, 34: 0.143, 35: 0.139, 38: 0.146, 45: 0.138, 49: 0.142}
	e := estimated(0.02, times)
	for _, chance := range []float64{0.5, 0.97} {
		chances := tilePriors()
		for i, tile := range tiles {
			if chances[i] *= 1 - chance; tile.rounds && tile.period == 7 {
				chances[i] += chance
			}
		}
		f := newShape(e.cells, e.cov, &priorBends, chances, 45, nil)
		if f == nil || f.parts[0].tile != 0 || f.jagged() {
			t.Fatalf("tile of 7 with probability %v: got no curve, or a curve with tiles, want only the smooth curve",
				chance)
		}
		mean, _ := f.curves(256, 0)
		for samples, want := range times {
			if got := mean.At(samples); math.Abs(math.Log(got/want)) > 0.06 { // three standard deviations
				t.Errorf("tile of 7 with probability %v, %v samples: got %.4f s, want %.4f as measured", chance,
					samples, got, want)
			}
		}
	}
}

// A curve that a profile measured as proportional must stay proportional down to one sample.
func TestAProportionalCurveStaysOne(t *testing.T) {
	f := newPosterior(divide.Curve{{Samples: 1, Seconds: 0.001}, {Samples: 256, Seconds: 0.256}}, 0, 256).shape
	if f.parts[0].tile != 0 || f.jagged() {
		t.Error("got a curve with tiles, want only the smooth curve")
	}
	mean, _ := f.curves(256, 0)
	for _, samples := range []float64{1, 16, 256} {
		if got, want := mean.At(samples), 0.001*samples; math.Abs(got/want-1) > 0.01 {
			t.Errorf("%v samples: got %.5f s, want %.5f", samples, got, want)
		}
	}
}

// turnsOnce reports whether a curve falls to its lowest point and rises beyond it.
func turnsOnce(c divide.Curve) bool {
	lowest := 0
	for i, p := range c {
		if p.Seconds < c[lowest].Seconds {
			lowest = i
		}
	}
	falls := slices.IsSortedFunc(c[:lowest+1], func(a, b divide.Point) int { return slower(b, a) })
	return falls && slices.IsSortedFunc(c[lowest:], slower)
}

func TestOutlineKeepsTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		corners := rapid.IntRange(2, 6).Draw(t, "corners")
		var truth divide.Curve
		for i := range corners {
			truth = append(truth, divide.Point{
				Samples: float64(1 + 50*i), Seconds: float64(1+i) + rapid.Float64Range(0, 0.9).Draw(t, "seconds")})
		}
		var fine divide.Curve
		for samples := 1.0; samples <= truth[corners-1].Samples; samples++ {
			fine = append(fine, divide.Point{Samples: samples, Seconds: truth.At(samples)})
		}
		got := simplify(fine, 10)
		if err := got.Check(); err != nil || len(got) > 10 {
			t.Fatalf("got %v (%v)", got, err)
		}
		for _, p := range fine {
			if at := got.At(p.Samples); math.Abs(at/p.Seconds-1) > 0.02 {
				t.Fatalf("at %v samples the simplified curve %v of %v has %v s, want %v", p.Samples, got, truth, at,
					p.Seconds)
			}
		}
	})
}

// A curve has a valley only if fewer samples were slower by far more than noise explains.
