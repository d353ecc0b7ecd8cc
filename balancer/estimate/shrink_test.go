package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// shrunkBy simulates ranks of one type with 64 samples each. It returns the times of their curves before and after
// shrink, in s.
func shrunkBy(t *testing.T, levels []float64, noise float64, windows int) (before, after []float64) {
	t.Helper()
	ranks := len(levels)
	m := New(Options{Limits: slices.Repeat([]int{64 * ranks}, ranks), Active: slices.Repeat([]bool{true}, ranks),
		Interval: 10, Types: slices.Repeat([]string{"one"}, ranks)})
	shares, fitted := slices.Repeat([]int{64}, ranks), make([]Fitted, ranks)
	for r, e := range m.ranks {
		e.noise = stat.Square(noise)
		play(e, &source{r: rand.New(rand.NewPCG(uint64(r), 7)), curve: sloped, level: func(int) float64 {
			return levels[r]
		}, noise: noise},
			slices.Repeat([]int{64}, windows)...)
		mean, cautious := e.shape.curves(m.options.Limits[r], 0)
		m.curves.set(r, mean, cautious)
		before = append(before, m.curves.mean[r].At(64))
		fitted[r] = Fitted{before[r], e.shape.sigma(64)}
	}
	m.types.shrink(m.ranks, &m.curves, shares, fitted)
	for r := range m.ranks {
		after = append(after, m.curves.mean[r].At(64))
		if fitted[r].Seconds != after[r] || m.curves.cautious[r].At(64) != after[r] {
			t.Errorf("rank %d: got a fitted time of %v s and %v s with margin, want %v s as on the curve", r,
				fitted[r].Seconds, m.curves.cautious[r].At(64), after[r])
		}
	}
	return before, after
}

// widest returns the log of the ratio of the largest value to the smallest.
func widest(values []float64) float64 { return math.Log(slices.Max(values) / slices.Min(values)) }

func TestEqualRanksOfOneTypeMoveTogether(t *testing.T) {
	before, after := shrunkBy(t, []float64{1, 1, 1, 1, 1, 1}, 0.2, 1)
	if widest(after) > 0.5*widest(before) {
		t.Errorf("one window, noise of 20 %%: got times from %.1f %% apart to %.1f %%, want at most half",
			100*widest(before), 100*widest(after))
	}
	before, after = shrunkBy(t, []float64{1, 1, 1, 1, 1, 1}, 0.01, 20)
	if math.Abs(widest(after)-widest(before)) > 0.001 {
		t.Errorf(
			"20 windows, noise of 1 %%: got times from %.2f %% apart to %.2f %%, want them unchanged: they are known",
			100*widest(before), 100*widest(after))
	}
}

// A device may be slower than others of its type, for example because it is hot.
func TestASlowRankOfATypeStaysSlow(t *testing.T) {
	before, after := shrunkBy(t, []float64{1, 1, 1, 1.5}, 0.05, 2)
	if moved := math.Log(before[3] / after[3]); moved > 0.02 {
		t.Errorf("a rank at 1.5 times the time of its type: got a curve %.1f %% lower, want at most 2 %%", 100*moved)
	}
}

// One of many ranks hardly changes the estimated differences within the type.
func TestASlowRankAmongManyStaysSlow(t *testing.T) {
	levels := slices.Repeat([]float64{1}, 64)
	levels[5] = 1.15
	before, after := shrunkBy(t, levels, 0.05, 4)
	if moved := math.Log(before[5] / after[5]); moved > 0.02 {
		t.Errorf("one of 64 ranks at 1.15 times the time of its type: got a curve %.1f %% lower, want at most 2 %%",
			100*moved)
	}
}

func TestShrinkNeedsTwoRanksOfAType(t *testing.T) {
	if types := typesOf([]string{"one", "another"}); len(types.groups) != 0 {
		t.Errorf("got groups %v of ranks of two types, want none", types.groups)
	}
}

// settle must give neighbouring times that contradict a rise one time, close to the exact one of them.
func TestSettleFollowsExactTimes(t *testing.T) {
	variances := []float64{1e-2, 1e-6, 1e-6, 1e-2, 1e-6}
	of := func(i int) float64 { return variances[i] }
	rising := divide.Curve{{Samples: 1, Seconds: 1.2}, {Samples: 2, Seconds: 1}, {Samples: 3, Seconds: 1.1},
		{Samples: 4, Seconds: 0.9}, {Samples: 5, Seconds: 1.3}}
	settle(rising, 0, of)
	for i, want := range []float64{1, 1, 1.1, 1.1, 1.3} {
		if got := rising[i].Seconds; math.Abs(got-want) > 1e-3 {
			t.Errorf("rising curve, %v samples: got %.4f s, want %.4f s", rising[i].Samples, got, want)
		}
	}
	valley := divide.Curve{{Samples: 1, Seconds: 1}, {Samples: 2, Seconds: 1.2}, {Samples: 3, Seconds: 0.5},
		{Samples: 4, Seconds: 0.6}, {Samples: 5, Seconds: 0.7}}
	settle(valley, 2, of)
	for i, want := range []float64{1.2, 1.2, 0.5, 0.6, 0.7} {
		if got := valley[i].Seconds; math.Abs(got-want) > 1e-3 {
			t.Errorf("curve with a valley, %v samples: got %.4f s, want %.4f s", valley[i].Samples, got, want)
		}
	}
	settled := divide.Curve{{Samples: 1, Seconds: 2}, {Samples: 2, Seconds: 1}, {Samples: 3, Seconds: 1},
		{Samples: 4, Seconds: 3}}
	settle(settled, 1, func(int) float64 {
		t.Error("asks for the variances of a curve that needs no change")
		return 1
	})
}
