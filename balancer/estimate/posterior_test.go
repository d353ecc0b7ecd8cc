package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// source makes step times from a curve, with noise. A function gives the level of step s.
type source struct {
	r     *rand.Rand
	curve func(samples int) float64
	level func(step int) float64
	noise float64
	step  int
}

func (k *source) window(samples, steps int) []float64 {
	out := make([]float64, steps)
	for i := range out {
		out[i] = k.curve(samples) * k.level(k.step) * math.Exp(k.noise*k.r.NormFloat64())
		k.step++
	}
	return out
}

// play passes a window of ten steps for each share to a rank, and fits its curve after each window.
func play(e *posterior, k *source, shares ...int) {
	for _, n := range shares {
		m := e.read(n, logsOf(k.window(n, 10)), false)
		e.update(&m, 0, 0)
		chances := make(tileBelief, len(tiles))
		for i, t := range tiles {
			chances[i] = t.prior
		}
		e.shape = newShape(e.cells, e.cov, &priorBends, chances, float64(n), e.shape.ownGrid())
	}
}

// In the first windows, a surprise at a share near a measured one must not move the level. The times of both shares
// must not change.
func TestTheFirstWindowsDoNotMoveTheLevel(t *testing.T) {
	for _, opening := range []bool{false, true} {
		e := newPosterior(nil, 0, 1000)
		first := e.read(72, []float64{math.Log(0.16), math.Log(0.16)}, true)
		e.update(&first, 0, 0)
		e.shape = newShape(e.cells, e.cov, &priorBends, tilePriors(), 72, nil)
		e.shape.chances = make(tileBelief, len(tiles)) // no tiles
		second := e.read(73, logsOf(slices.Repeat([]float64{0.26}, 4)), opening)
		e.update(&second, 0, 0)
		if got, moved := stat.Exp(e.cells[0].log), math.Abs(e.cells[0].log-math.Log(0.16)) > 1e-9; moved == opening {
			t.Errorf("opening %v: got %.3f s for the older share, want 0.16 s only in the first windows", opening, got)
		}
	}
}

func steady(int) float64 { return 1 }

func sloped(n int) float64 { return 0.01 + 0.001*float64(n) }

func checkTimes(t *testing.T, e *posterior, within float64, want map[int]float64) {
	t.Helper()
	for n, seconds := range want {
		if got, _ := e.shape.at(float64(n)); math.Abs(math.Log(got/seconds)) > within {
			t.Errorf("%d samples: got %.4f s, want %.4f", n, got, seconds)
		}
	}
}

func TestALevelThatMovesWithinAWindowMovesAllShares(t *testing.T) {
	for name, level := range map[string]func(step int) float64{
		"steadily": func(step int) float64 { return math.Exp(0.03 * min(max(float64(step-20), 0), 10)) },
		"at once": func(step int) float64 {
			if step < 24 {
				return 1
			}
			return 1.4
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &source{r: rand.New(rand.NewPCG(1, 1)), curve: sloped, level: level, noise: 0.005}
			e := newPosterior(nil, 0, 256)
			play(e, k, 40, 60, 60)
			now := level(29)
			checkTimes(t, e, 0.04, map[int]float64{40: now * sloped(40), 60: now * sloped(60)})
		})
	}
}

func TestASurpriseAtANewShareIsTheShapes(t *testing.T) {
	curve := func(n int) float64 { // fast with multiples of 8
		if n%8 == 0 {
			return sloped(n)
		}
		return 1.5 * sloped(n)
	}
	k := &source{r: rand.New(rand.NewPCG(2, 1)), curve: curve, level: steady, noise: 0.02}
	e := newPosterior(nil, 0, 256)
	play(e, k, 40, 40, 43)
	checkTimes(t, e, 0.06, map[int]float64{40: curve(40), 43: curve(43)})
	play(e, k, 40)
	checkTimes(t, e, 0.06, map[int]float64{40: curve(40), 43: curve(43)})
}

func TestAKnownShareTellsThatTheLevelHadMoved(t *testing.T) {
	level := func(step int) float64 { // jumps with the change to a new share
		if step < 30 {
			return 1
		}
		return 1.5
	}
	k := &source{r: rand.New(rand.NewPCG(3, 1)), curve: sloped, level: level, noise: 0.01}
	e := newPosterior(nil, 0, 256)
	play(e, k, 40, 60, 40, 50, 40)
	checkTimes(t, e, 0.06, map[int]float64{40: 1.5 * sloped(40), 50: 1.5 * sloped(50), 60: 1.5 * sloped(60)})
}

func TestTilesAreFound(t *testing.T) {
	for _, period := range []int{8, 16, 32} {
		curve := func(n int) float64 {
			if n%period == 0 {
				return sloped(n)
			}
			return 1.4 * sloped(n)
		}
		k := &source{r: rand.New(rand.NewPCG(4, 1)), curve: curve, level: steady, noise: 0.02}
		e := newPosterior(nil, 0, 256)
		play(e, k, 71, 64, 70, 64-period/2, 96)
		checkTimes(t, e, 0.08, map[int]float64{64: curve(64), 70: curve(70), 128: curve(128), 130: curve(130)})
		if best := e.shape.parts[0]; tiles[best.tile].period != period || tiles[best.tile].rounds {
			t.Errorf("tiles of %d: got %+v with chance %.2f", period, tiles[best.tile], best.chance)
		}
	}
}

// If all ranks reach their first tile in the same window, this must not count as a common change of the host.
func TestTheFirstShareThatFillsATileTellsNothingOfTheCommonLevel(t *testing.T) {
	for _, test := range []struct {
		shares []int
		next   int
		first  bool
	}{
		{[]int{71, 67}, 64, true}, {[]int{71, 67}, 72, true}, {[]int{71, 67}, 69, false},
		{[]int{64}, 71, true}, {[]int{64, 71, 96}, 128, false}, {[]int{64, 71}, 128, false},
	} {
		k := &source{r: rand.New(rand.NewPCG(5, 1)), curve: sloped, level: steady, noise: 0.01}
		e := newPosterior(nil, 0, 256)
		play(e, k, test.shares...)
		if m := e.read(test.next, logsOf(k.window(test.next, 10)), false); math.IsNaN(m.surprise) != test.first {
			t.Errorf("%d samples after %v: got a surprise of %.3f, want none: %v", test.next, test.shares, m.surprise,
				test.first)
		}
	}
}

// A tile enters a prediction with a small and with a large weight. The predicted times of measured shares must not
// change.
func TestAHypothesisKeepsWhatWasMeasured(t *testing.T) {
	k := &source{r: rand.New(rand.NewPCG(6, 2)), curve: sloped, level: steady, noise: 0.01}
	e := newPosterior(nil, 0, 256)
	play(e, k, 71, 60, 60, 71)
	tile := slices.IndexFunc(tiles, func(t tile) bool { return t.period == 32 && !t.rounds })
	small, large := e.shape.under(tile, 1, 256), e.shape.under(tile, -1, 256)
	for _, n := range []float64{60, 71} {
		for name, c := range map[string]divide.Curve{"small": small, "large": large} {
			if got := c.At(n); math.Abs(math.Log(got/sloped(int(n)))) > 0.02 {
				t.Errorf("%s weight, %v samples: got %.4f s, want %.4f", name, n, got, sloped(int(n)))
			}
		}
	}
	if a, b, plain := small.At(64), large.At(64), sloped(64); !(b < 0.75*plain && b < 0.8*a && a < plain) {
		t.Errorf("64 samples: got %.4f s with a small weight and %.4f with a large one, want less than %.4f, and %.4f at most",
			a, b, plain, 0.75*plain)
	}
}

// A tile must not move a measured time.
func TestNoTileMovesAMeasuredTime(t *testing.T) {
	falls := func(n int) float64 {
		switch {
		case n <= 16:
			return 0.21
		case n < 32:
			return 0.21 - 0.07*float64(n-16)/16
		}
		return 0.14
	}
	k := &source{r: rand.New(rand.NewPCG(7, 2)), curve: falls, level: steady, noise: 0.03}
	e := newPosterior(nil, 0, 128)
	play(e, k, 32, 8, 16, 32, 2, 6, 48, 32, 35, 35)
	chances := make(tileBelief, len(tiles))
	for i, t := range tiles {
		chances[i] = t.prior
		if t.rounds && t.period == 5 { // as likely as other ranks make it
			chances[i] = 0.5
		}
	}
	e.shape = newShape(e.cells, e.cov, &priorBends, chances, 35, nil)
	mean, _ := e.shape.curves(128, 0)
	for _, n := range []float64{16, 32, 35, 48} {
		if got, want := mean.At(n), falls(int(n)); math.Abs(math.Log(got/want)) > 0.04 {
			t.Errorf("%v samples: got %.4f s, want %.4f", n, got, want)
		}
	}
}

// A share near a measured one shows a change of the level only if no probable tile distinguishes the two.
func TestSharesAreAlikeIfNoTileDistinguishesThem(t *testing.T) {
	for name, test := range map[string]struct {
		period   int
		rounds   bool
		chance   float64
		measured float64
		samples  float64
		want     bool
	}{
		"no tile":                            {0, false, 1, 9, 8, true},
		"far away":                           {0, false, 1, 9, 5, false},
		"only one fills the aligned tile":    {8, false, 0.01, 9, 8, false},
		"none fills the aligned tile":        {8, false, 0.01, 9, 10, true},
		"an improbable aligned tile":         {8, false, 0.003, 9, 8, true},
		"the next tile that rounds up":       {8, true, 0.9, 9, 8, false},
		"the same large tile that rounds up": {16, true, 0.9, 60, 62, true},
		"an improbable tile that rounds up":  {8, true, 0.01, 9, 8, true},
	} {
		e := estimated(0.02, map[float64]float64{test.measured: 0.1})
		e.shape = &shape{chances: make(tileBelief, len(tiles))}
		for i, tile := range tiles {
			if tile.period == test.period && tile.rounds == test.rounds {
				e.shape.chances[i] = test.chance
			}
		}
		if got := e.alike(test.samples); got != test.want {
			t.Errorf("%s: %v and %v samples: got alike %v, want %v", name, test.measured, test.samples, got, test.want)
		}
	}
}

func TestNoTilesAreSeenInALine(t *testing.T) {
	for seed := range uint64(20) {
		k := &source{r: rand.New(rand.NewPCG(seed, 5)), curve: sloped, level: steady, noise: 0.05}
		e := newPosterior(nil, 0, 256)
		play(e, k, 64, 30, 41, 32, 48, 45)
		if smooth := e.shape.chances[0]; smooth < 0.5 {
			t.Errorf("seed %d: the chance that no tile shows is %.2f, want at least 0.5", seed, smooth)
		}
	}
}

func TestRampsAreNoJumps(t *testing.T) {
	tests := []struct {
		name string
		at   func(i int) float64 // log of step i
		want float64             // slope
	}{
		{"nothing", func(i int) float64 { return 0 }, 0},
		{"a ramp", func(i int) float64 { return 0.02 * float64(i) }, 0.02},
		{"a falling ramp", func(i int) float64 { return -0.02 * float64(i) }, -0.02},
		{"a jump", func(i int) float64 { return 0.3 * float64(i/6) }, 0},
		{"one slow step", func(i int) float64 { return math.Max(0, 1-math.Abs(float64(i-5))) }, 0},
	}
	for _, test := range tests {
		r := rand.New(rand.NewPCG(6, 1))
		logs := make([]float64, 10)
		for i := range logs {
			logs[i] = test.at(i) + 0.005*r.NormFloat64()
		}
		if got := ramp(logs, 0.005*0.005, sureSigmas); math.Abs(got-test.want) > 0.004 {
			t.Errorf("%s: got a slope of %.4f a step, want %.4f", test.name, got, test.want)
		}
	}
}

// If the shares of a rank stay the same, its next curve reuses the grid. The curve must be bit-equal to a curve with a
// new grid.
func TestAKeptGridChangesNoBit(t *testing.T) {
	k := &source{r: rand.New(rand.NewPCG(7, 1)), curve: sloped, level: steady, noise: 0.05}
	e := newPosterior(nil, 0, 256)
	chances := make(tileBelief, len(tiles))
	for i, t := range tiles {
		chances[i] = t.prior
	}
	kept := 0
	for i, n := range []int{64, 64, 40, 40, 40, 48, 33, 33, 64, 64, 300, 300} {
		m := e.read(n, logsOf(k.window(n, 10)), false)
		e.update(&m, 0, 0)
		before := e.shape.ownGrid()
		fresh := newShape(e.cells, e.cov, &priorBends, chances, float64(n), nil)
		wantMean, wantOff := fresh.curves(256, 0.5)
		e.shape = newShape(e.cells, e.cov, &priorBends, chances, float64(n), before)
		if e.shape.grid == before {
			kept++
		}
		mean, off := e.shape.curves(256, 0.5)
		if !slices.Equal(mean, wantMean) || !slices.Equal(off, wantOff) ||
			!slices.Equal(e.shape.chances, fresh.chances) {
			t.Errorf("window %d, %d samples: got a curve other than that of a fresh fit", i, n)
		}
		for j, p := range mean {
			if got, want := onto(mean, j, p.Samples), mean.At(p.Samples); got != want {
				t.Errorf("window %d: onto(%d, %v) = %v, At = %v", i, j, p.Samples, got, want)
			}
		}
	}
	if kept != 6 {
		t.Errorf("the grid was kept in %d windows, want those 6 in which shares stayed", kept)
	}
}

func TestExpIsThatOfTheWholeSeries(t *testing.T) {
	whole := func(x float64) float64 {
		k := math.Round(x / math.Ln2)
		const high, low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
		r := (x - k*high) - k*low
		sum, term := 1.0, 1.0
		for i := 1; i <= 17; i++ {
			term *= r / float64(i)
			sum += term
		}
		return math.Ldexp(sum, int(k))
	}
	r := rand.New(rand.NewPCG(8, 1))
	for range 100_000 {
		if x := 700 * (2*r.Float64() - 1); stat.Exp(x) != whole(x) {
			t.Fatalf("stat.Exp(%v) = %v, want %v", x, stat.Exp(x), whole(x))
		}
		if x := 2 * (2*r.Float64() - 1); stat.Exp(x) != whole(x) {
			t.Fatalf("stat.Exp(%v) = %v, want %v", x, stat.Exp(x), whole(x))
		}
	}
}

func logsOf(seconds []float64) []float64 { return appendLogs(nil, seconds) }
