package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// measure updates a single rank with a window, and fits its curve.
func (e *posterior) measure(samples int, seconds []float64) {
	m := e.read(samples, logsOf(seconds), false)
	e.update(&m, 0, 0)
	e.fit(float64(samples))
}

// fit returns the curve around a share, without other ranks.
func (e *posterior) fit(b0 float64) *shape {
	e.draw(e.cells, e.cov, &priorBends, tilePriors(), b0)
	return e.shape
}

// mean returns the expected time of a share, in s.
func (f *shape) mean(samples float64) float64 {
	m, _ := f.at(samples)
	return m
}

// rank is a device that takes perSample for each sample, plus fixed, in s, with lognormal noise.
type rank struct {
	fixed, perSample, noise float64
	random                  *rand.Rand
}

func newRank(seed uint64, noise float64) *rank {
	return &rank{fixed: 0.02, perSample: 0.001, noise: noise, random: rand.New(rand.NewPCG(seed, 7))}
}

func (k *rank) seconds(samples int) float64 { return k.fixed + k.perSample*float64(samples) }

// window returns the times of a number of steps, in s.
func (k *rank) window(samples, steps int) []float64 {
	out := make([]float64, steps)
	for i := range out {
		out[i] = k.seconds(samples) * math.Exp(k.noise*k.random.NormFloat64())
	}
	return out
}

// far returns the relative error of the estimated time of a share.
func (k *rank) far(e *posterior, samples int) float64 {
	return math.Abs(e.fit(float64(samples)).mean(float64(samples))/k.seconds(samples) - 1)
}

func TestSpeedBearsSlowSteps(t *testing.T) {
	for seed := range uint64(50) {
		k, e := newRank(seed, 0.02), newPosterior(nil, 0, 256)
		for window := range 20 {
			times := k.window(64, 10)
			times[(3*window)%10] *= 5 // one step in ten: a checkpoint, another process
			e.measure(64, times)
		}
		// Huber's clipping limit is about 2.5 sigma, so one outlier in ten steps raises the mean by about 0.25 sigma
		// (0.5 %). The plain mean has an error of 40 %.
		if far := k.far(e, 64); far > 0.02 {
			t.Errorf("seed %d: %.1f %% off", seed, 100*far)
		}
	}
}

func TestSpeedTakesWhatIsAfterAJump(t *testing.T) {
	for seed := range uint64(50) {
		for cut := 3; cut <= 7; cut++ {
			k, e := newRank(seed, 0.03), newPosterior(nil, 0, 256)
			for range 5 {
				e.measure(64, k.window(64, 10))
			}
			before := k.window(64, cut)
			k.fixed, k.perSample = 2*k.fixed, 2*k.perSample // half as fast
			e.measure(64, append(before, k.window(64, 10-cut)...))
			// The mean contains three to seven steps with a noise of 3 %. The limit is 5 standard errors of three
			// steps.
			if far := k.far(e, 64); far > 5*0.03/math.Sqrt(3) {
				t.Errorf("seed %d, jump after step %d: %.1f %% off", seed, cut, 100*far)
			}
		}
	}
}

func TestNewestCutsOnlyAtJumps(t *testing.T) {
	flat := func(levels ...float64) []float64 { return levels }
	tests := []struct {
		name string
		logs []float64
		kept int
	}{
		{"no jump", flat(0, 0.01, -0.01, 0, 0.01, 0), 6},
		{"a jump", flat(0, 0.01, 0, 1, 1.01, 0.99, 1), 4},
		{"a fall", flat(1, 1, 1, 0, 0, 0), 3},
		{"a slow step at the end", flat(0, 0, 0, 0, 0, 1), 6},
		{"two slow steps at the end", flat(0, 0, 0, 0, 1, 1), 6},
		{"a slow step in the middle", flat(0, 0, 0, 1, 0, 0), 6},
		{"slow steps now and then", flat(0, 1, 0, 0, 1, 0, 0, 1), 8},
		{"a small jump", flat(0, 0, 0, 0.05, 0.05, 0.05), 6},
		{"one step", flat(0), 1},
	}
	for _, test := range tests {
		if got := newest(test.logs, 1e-4, sureSigmas); len(got) != test.kept {
			t.Errorf("%s: kept %v of %v, want the last %d", test.name, got, test.logs, test.kept)
		}
	}
}

func TestSpeedMovesAllSharesWithAShift(t *testing.T) {
	k, e := newRank(1, 0.01), newPosterior(nil, 0, 256)
	for range 4 {
		for _, samples := range []int{32, 64, 128} {
			e.measure(samples, k.window(samples, 10))
		}
	}
	k.fixed, k.perSample = 2*k.fixed, 2*k.perSample
	e.measure(128, k.window(128, 10))
	for _, samples := range []int{32, 64, 128, 200} {
		if far := k.far(e, samples); far > 0.05 { // one window after the other shares were measured
			t.Errorf("after a shift seen at 128, %d samples are %.1f %% off", samples, 100*far)
		}
	}
	// A share that was measured only before or only after the level moved must count little.
	k, e = newRank(2, 0.01), newPosterior(nil, 0, 256)
	e.measure(128, k.window(128, 10))
	k.fixed, k.perSample = 2*k.fixed, 2*k.perSample
	e.measure(32, k.window(32, 10))
	e.measure(128, k.window(128, 10))
	for _, samples := range []int{32, 128} {
		if far := k.far(e, samples); far > 0.15 { // an estimate without the change of the level has an error of 100 %
			t.Errorf("%d samples are %.1f %% off", samples, 100*far)
		}
	}
}

func TestSpeedTakesAFalseShiftBack(t *testing.T) {
	k, e := newRank(3, 0.01), newPosterior(nil, 0, 256)
	for range 4 {
		for _, samples := range []int{32, 64, 128} {
			e.measure(samples, k.window(samples, 10))
		}
	}
	slow := *k
	slow.fixed, slow.perSample = 1.5*k.fixed, 1.5*k.perSample
	e.measure(128, slow.window(128, 10)) // one window in which another process slowed down the rank
	e.measure(64, k.window(64, 10))
	for _, samples := range []int{32, 64, 128} {
		if far := k.far(e, samples); far > 0.03 {
			t.Errorf("%d samples are %.1f %% off", samples, 100*far)
		}
	}
	// If the rank stays slow, the estimate must follow.
	e.measure(128, slow.window(128, 10))
	e.measure(64, slow.window(64, 10))
	for _, samples := range []int{32, 64, 128} {
		if far := slow.far(e, samples); far > 0.03 {
			t.Errorf("after it has become slow for good, %d samples are %.1f %% off", samples, 100*far)
		}
	}
}

func TestSpeedFollowsDrift(t *testing.T) {
	for seed := range uint64(10) {
		k, e := newRank(seed, 0.02), newPosterior(nil, 0, 256)
		worst := 0.0
		for window := range 400 {
			k.perSample *= 1.001 // 0.1 % a window: a device that warms up
			k.fixed *= 1.001
			e.measure(64, k.window(64, 10))
			if window > 50 {
				worst = max(worst, k.far(e, 64))
			}
		}
		// The mean of a single window has a standard error of 0.6 %. A filter with a fixed level would have an error of
		// 30 % at the end.
		if worst > 0.025 {
			t.Errorf("seed %d: at worst %.1f %% off", seed, 100*worst)
		}
	}
}

func TestSpeedLearnsHowFastTheSpeedWanders(t *testing.T) {
	for _, shares := range []int{1, 5} { // measured in turns
		for _, test := range []struct {
			perWindow, least, most float64
		}{{0, 0, 2 * leastWander}, {0.003, 10 * leastWander, 0.01}} {
			var learnt []float64
			for seed := range uint64(20) {
				k, e := newRank(seed, 0.02), newPosterior(nil, 0, 256)
				for window := range 150 {
					k.perSample *= 1 + test.perWindow
					k.fixed *= 1 + test.perWindow
					samples := 64 + 5*window%shares
					e.measure(samples, k.window(samples, 10))
				}
				learnt = append(learnt, e.wander)
			}
			if got := stat.Median(learnt); got < test.least || got > test.most {
				t.Errorf("%d shares: a rank that gets slower by %v a window is taken to wander by %.5f, want %v to %v",
					shares, test.perWindow, got, test.least, test.most)
			}
		}
	}
}

func TestOneShareTellsOfTheOthers(t *testing.T) {
	// A rank becomes slower by 0.2 % per window, 12 % in all, and is measured at one share only. No single window shows
	// a change of speed.
	k, e := newRank(9, 0.01), newPosterior(nil, 0, 256)
	for range 4 {
		for _, samples := range []int{32, 64, 128} {
			e.measure(samples, k.window(samples, 10))
		}
	}
	for range 60 {
		k.perSample *= 1.002
		k.fixed *= 1.002
		e.measure(128, k.window(128, 10))
	}
	for _, samples := range []int{32, 64, 128} {
		if far := k.far(e, samples); far > 0.03 {
			t.Errorf("%d samples are %.1f %% off", samples, 100*far)
		}
	}
}

func TestSpeedLearnsTheNoise(t *testing.T) {
	for _, noise := range []float64{0.005, 0.02, 0.05, 0.2} {
		k, e := newRank(11, noise), newPosterior(nil, 0, 256)
		for range 60 {
			e.measure(64, k.window(64, 10))
		}
		// Clipping removes a small part of the tails, and the prior counts the first steps with a noise of 3 %.
		if got := math.Sqrt(e.noise); got < 0.75*noise || got > 1.25*noise {
			t.Errorf("noise of %v is taken for %.4f", noise, got)
		}
	}
}

func TestSpeedKeepsFewCells(t *testing.T) {
	k, e := newRank(5, 0.01), newPosterior(nil, 0, 1000)
	random := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		samples := 1 + random.IntN(1000)
		e.measure(samples, k.window(samples, 10))
		if len(e.cells) > mostShares {
			t.Fatalf("got %d cells, want at most %d", len(e.cells), mostShares)
		}
		if current := e.cells[e.current]; current.samples != float64(samples) || current.age != 0 {
			t.Fatalf("after %d samples the current cell is %+v", samples, current)
		}
	}
	for _, samples := range []int{20, 100, 300, 1000} {
		if far := k.far(e, samples); far > 0.03 {
			t.Errorf("%d samples are %.1f %% off", samples, 100*far)
		}
	}
}

func TestSpeedBelievesTheShapeOfAnEarlierRun(t *testing.T) {
	// The earlier curve has a step every 32 samples, and comes from a machine that was 3 times as fast.
	shape := func(samples float64) float64 { return 0.01 + 0.03*math.Ceil(samples/32) }
	var prior divide.Curve
	for samples := 1.0; samples <= 512; samples++ {
		prior = append(prior, divide.Point{Samples: samples, Seconds: shape(samples) / 3})
	}
	e := newPosterior(prior, 0, 256)
	if n := len(e.cells); n > mostShares/2 || e.cells[n-1].samples != 256 || e.cells[0].samples != 1 {
		t.Fatalf("got cells %+v, want at most %d from 1 to 256", e.cells, mostShares/2)
	}
	e.measure(96, slices.Repeat([]float64{shape(96)}, 10))
	for _, samples := range []float64{48, 96, 128, 200, 256} {
		got := e.fit(96).mean(samples)
		if far := math.Abs(got/shape(samples) - 1); far > 0.25 { // ten points cannot show all eight steps
			t.Errorf("%v samples: got %.4f s, want %.4f", samples, got, shape(samples))
		}
	}
	for name, prior := range map[string]divide.Curve{
		"elsewhere":     {{Samples: 300, Seconds: 1}, {Samples: 400, Seconds: 2}},
		"without times": {{Samples: 1, Seconds: 0}, {Samples: 256, Seconds: 0}}} {
		if e := newPosterior(prior, 0, 256); len(e.cells) > 0 || e.shape != nil {
			t.Errorf("of a curve %s got cells %+v", name, e.cells)
		}
	}
}

func TestNewestIsQuickInLongWindows(t *testing.T) {
	// A decision reads the windows of all ranks. If the code computed the medians of all cuts, a window of 100,000
	// steps would take many minutes.
	k := newRank(1, 0.03)
	logs := k.window(64, 100_000)
	for i := range logs {
		logs[i] = math.Log(logs[i])
		if i >= 60_000 {
			logs[i] += 0.7
		}
	}
	if got := newest(logs, 0.03*0.03, sureSigmas); len(got) != 40_000 {
		t.Errorf("kept %d steps, want the last 40,000", len(got))
	}
}

// A rank with a CPU quota completes some steps within the quota of one period, and waits for the next period in other
// steps. Steps of neither kind are outliers.
func TestStepsOfTwoKindsCountAsTheirMean(t *testing.T) {
	logs := make([]float64, 10)
	for i := range logs {
		seconds := 0.0034
		if i%5 >= 3 {
			seconds = 0.029
		}
		logs[i] = math.Log(seconds)
	}
	if m, _ := robustMean(logs); math.Abs(math.Exp(m)-0.01364) > 1e-5 {
		t.Errorf("got %v s, want the mean of 3.4 and 29 ms, three to two", math.Exp(m))
	}
}

// Another program takes nearly half of the rank's time for three windows, and the rank's share changes in each of them.
// A share of these windows, measured again, must show that the level had moved, and not the shape.
func TestASpellIsTakenBackByAKnownShare(t *testing.T) {
	for seed := range uint64(20) {
		k, e := newRank(seed, 0.02), newPosterior(nil, 0, 256)
		for range 3 {
			for _, samples := range []int{64, 128} {
				e.measure(samples, k.window(samples, 10))
			}
		}
		slow := *k
		slow.fixed, slow.perSample = 1.8*k.fixed, 1.8*k.perSample
		for _, samples := range []int{128, 100, 90} {
			e.measure(samples, slow.window(samples, 10))
		}
		e.measure(40, k.window(40, 10))
		e.measure(90, k.window(90, 10))
		for _, samples := range []int{40, 64, 90, 100, 128} {
			if far := k.far(e, samples); far > 0.1 { // without the return, the error is 80 %
				t.Errorf("seed %d: %d samples are %.1f %% off", seed, samples, 100*far)
			}
		}
	}
}

func TestSpeedLearnsHowMuchWindowsDiffer(t *testing.T) {
	for _, c := range []struct{ sigma, least, most float64 }{{0, 0, 0.005}, {0.05, 0.025, 0.07}} {
		var learnt []float64
		for seed := range uint64(20) {
			k, e := newRank(seed, 0.02), newPosterior(nil, 0, 256)
			for range 150 {
				times, factor := k.window(64, 10), math.Exp(c.sigma*k.random.NormFloat64())
				for i := range times {
					times[i] *= factor
				}
				e.measure(64, times)
			}
			learnt = append(learnt, math.Sqrt(e.jitter))
		}
		if got := stat.Median(learnt); got < c.least || got > c.most {
			t.Errorf("windows that differ by %v in addition to their steps: got an estimate of %.4f, want %v to %v",
				c.sigma, got, c.least, c.most)
		}
	}
}
