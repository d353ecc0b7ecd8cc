package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// A share next to a measured one takes about as long. If it does not, the model must assume that the level has moved.
// If an older share then has its earlier time, the model must revoke this.
func TestASurpriseNextToAKnownShareIsTheLevels(t *testing.T) {
	for name, test := range map[string]struct {
		curve func(n int) float64
		level func(step int) float64
		end   map[int]float64
	}{
		"a rank that recovers": {sloped, func(step int) float64 {
			if step < 30 {
				return 1.8
			}
			return 1
		}, map[int]float64{75: sloped(75), 41: sloped(41), 42: sloped(42)}},
		"a curve with a step": {func(n int) float64 {
			if n == 42 {
				return 0.5 * sloped(n)
			}
			return sloped(n)
		}, steady, map[int]float64{75: sloped(75), 41: sloped(41), 42: 0.5 * sloped(42)}},
	} {
		k := &source{r: rand.New(rand.NewPCG(3, 1)), curve: test.curve, level: test.level, noise: 0.01}
		e := newPosterior(nil, 0, 256)
		play(e, k, 75, 41, 75, 42)
		if !e.moved || e.surprise == 0 {
			t.Errorf("%s: the surprise of the new share is not taken for the level's", name)
		}
		play(e, k, 75)
		t.Run(name, func(t *testing.T) { checkTimes(t, e, 0.06, test.end) })
	}
}

// The time at a new share is far from the curve. The model must ask once for an earlier share, which shows whether the
// level has moved. It must not ask if the next share already is this share.
func TestAnEarlierShareConfirmsASurprise(t *testing.T) {
	for name, test := range map[string]struct{ near, want int }{"another share": {64, 62}, "the same share": {62, 0}} {
		m := New(Options{Limits: []int{128}, Active: []bool{true}, Interval: 10})
		e := m.ranks[0]
		play(e, &source{r: rand.New(rand.NewPCG(0, 1)), curve: sloped, level: steady, noise: 0.005}, 62, 10)
		if got := m.AskAgain(0, test.near); got != 0 {
			t.Errorf("%s, without a surprise: got %d samples, want no question", name, got)
		}
		e.surprise, e.since = 0.5, -1
		if got := m.AskAgain(0, test.near); got != test.want {
			t.Errorf("%s: got %d samples, want %d", name, got, test.want)
		}
		if again := m.AskAgain(0, test.near); again != 0 {
			t.Errorf("%s: got %d samples a second time, want one question for each surprise", name, again)
		}
	}
}

// A change that all ranks have in common within a window must not count as a ramp or as noise of one rank. With two
// ranks, no change counts as common, and the noise of each rank must remain.
func TestWhatRanksDoAlikeWithinAWindowIsRemoved(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	make4 := func(ranks int, ramp, noise float64) [][]float64 {
		logs := make([][]float64, ranks)
		for i := range logs {
			for s := range 10 {
				logs[i] = append(logs[i], float64(i)+ramp*float64(s)+noise*r.NormFloat64())
			}
		}
		return logs
	}
	spread := func(logs []float64) float64 { return slices.Max(logs) - slices.Min(logs) }
	for name, test := range map[string]struct {
		ranks       int
		ramp, noise float64
		most        float64 // spread of a rank's logs after
		least       float64
	}{
		"a common ramp":     {4, 0.03, 0.001, 0.02, 0},
		"two ranks":         {2, 0.03, 0.001, 1, 0.25},
		"noise of each":     {8, 0, 0.01, 0.1, 0.01},
		"a ramp below this": {4, 0.0001, 0.01, 0.1, 0.01},
	} {
		logs := make4(test.ranks, test.ramp, test.noise)
		before := make([]float64, len(logs))
		for i, l := range logs {
			before[i] = stat.MeanOf(l).Or(0)
		}
		withoutCommon(logs, stat.Square(test.noise))
		for i, l := range logs {
			if s := spread(l); s > test.most || s < test.least {
				t.Errorf("%s: rank %d: logs differ by %.4f, want %v to %v", name, i, s, test.least, test.most)
			}
			if m := stat.MeanOf(l).Or(0); math.Abs(m-before[i]) > 1e-9 {
				t.Errorf("%s: rank %d: the mean moved by %v", name, i, m-before[i])
			}
		}
	}
	uneven := make4(4, 0.03, 0.001)
	uneven[2] = uneven[2][:7]
	want := slices.Clone(uneven[0])
	if withoutCommon(uneven, 1e-6); !slices.Equal(uneven[0], want) {
		t.Error("a rank was not measured in all steps, and the logs of others changed")
	}
}

// With many ranks, but few of each type, each rank fits its curve in one of eight windows, and scales the curve in the
// others. Its time at the share in use must still be that of a new curve, even if shrink moves the curves of one type
// in every window.
func TestCurvesOfManyRanksFollow(t *testing.T) {
	const ranks = manyRanks + 1
	for _, types := range [][]string{nil, slices.Repeat([]string{"a", "b", "c", "d", "e"}, ranks)[:ranks]} {
		m := New(Options{Limits: slices.Repeat([]int{64 * ranks}, ranks), Active: slices.Repeat([]bool{true}, ranks),
			Interval: 10, Types: types})
		random := rand.New(rand.NewPCG(3, 99))
		shares := slices.Repeat([]int{64}, ranks)
		for range 20 {
			playWindow(m, random, shares, 10, 0.02)
			if _, missing := m.Fit(shares, true); missing >= 0 {
				t.Fatalf("rank %d has no curve", missing)
			}
		}
		followed, moved := 0, 0
		for r, e := range m.ranks {
			got := m.curves.mean[r].At(64) / m.curves.shrunk[r]
			if m.curves.shrunk[r] != 1 {
				moved++
			}
			if m.follows(r, 64) {
				followed++
			}
			if want := stat.Exp(e.cells[e.current].log); math.Abs(got/want-1) > 0.02 {
				t.Errorf("types %v: rank %d: got %.4f s for the share in use, want %.4f", types, r, got, want)
			}
		}
		if followed < ranks/2 || followed == ranks {
			t.Errorf("types %v: %d of %d ranks scale their curves, want most", types, followed, ranks)
		}
		if types != nil && moved < ranks/2 {
			t.Errorf("shrink moved %d curves of %d ranks of five types, want most", moved, ranks)
		}
	}
}
