package policies_test

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// formula is a second implementation of the formula of policy dynamic: shares in proportion to the score, by largest
// remainder, with ties to the lower rank. It has no limits, and assumes that no share is below one sample.
func formula(total int, base, secondsPerSample, utilization, memory []float64, straggler []bool) []int {
	sumBase, sumPerformance := 0.0, 0.0
	for r := range base {
		sumBase += base[r]
		sumPerformance += 1 / secondsPerSample[r]
	}
	scores, sum := make([]*big.Rat, len(base)), new(big.Rat)
	for r := range base {
		score := 0.6*base[r]/sumBase + 0.4/secondsPerSample[r]/sumPerformance
		score *= 1 - 0.2*utilization[r]
		score *= 1 - 0.2*memory[r]
		if straggler[r] {
			score *= 0.5
		}
		scores[r] = new(big.Rat).SetFloat64(score)
		sum.Add(sum, scores[r])
	}
	shares, remainders, left := make([]int, len(base)), make([]*big.Rat, len(base)), total
	for r, score := range scores {
		exact := new(big.Rat).Mul(big.NewRat(int64(total), 1), score)
		exact.Quo(exact, sum)
		shares[r] = int(new(big.Int).Quo(exact.Num(), exact.Denom()).Int64())
		remainders[r] = exact.Sub(exact, big.NewRat(int64(shares[r]), 1))
		left -= shares[r]
	}
	for range left {
		largest := 0
		for r := range remainders {
			if remainders[r].Cmp(remainders[largest]) > 0 {
				largest = r
			}
		}
		shares[largest]++
		remainders[largest].SetInt64(-1)
	}
	return shares
}

// decide passes steps to a policy until its next decision. The steps have the shares that the policy has decided.
func decide(t *testing.T, p balancer.Policy, step func(shares []int) *balancer.Step, shares []int) *balancer.Decision {
	t.Helper()
	for range 1000 {
		if d, ok := p.Observe(step(shares)); ok {
			return d
		}
	}
	t.Fatal("no decision in 1,000 steps")
	return nil
}

// steady returns a function that makes steps of ranks with a constant time per sample.
func steady(secondsPerSample, utilization, memory []float64) func(shares []int) *balancer.Step {
	return func(shares []int) *balancer.Step {
		s := &balancer.Step{Shares: shares, Own: make([]float64, len(shares)), Utilization: utilization, Memory: memory}
		for r, n := range shares {
			s.Own[r] = float64(n) * secondsPerSample[r]
			s.Seconds = max(s.Seconds, s.Own[r])
		}
		return s
	}
}

func TestDynamicFollowsItsFormula(t *testing.T) {
	nan := math.NaN()
	zero := []float64{0, 0, 0}
	tests := []struct {
		name                        string
		scores                      []float64
		secondsPerSample            []float64
		utilization, memory         []float64 // measured values
		countsAsUse, countsAsMemory []float64 // values that the formula uses
		want                        []int
	}{
		// base 0.5 0.3 0.2, performance 4/7 2/7 1/7: scores .528571 .294286 .177143 of 200 = 105.71 58.86 35.43
		{"speed", []float64{5, 3, 2}, []float64{0.001, 0.002, 0.004}, nil, nil, zero, zero, []int{106, 59, 35}},
		// The scores are those of the case above, with that of rank 0 times 0.8. Their sum is 1 - 0.105714 = 0.894286:
		// 94.57 65.81 39.62
		{"a busy device", []float64{5, 3, 2}, []float64{0.001, 0.002, 0.004}, []float64{1, 0, 0}, nil,
			[]float64{1, 0, 0}, zero, []int{94, 66, 40}},
		{"devices with little memory left", []float64{5, 3, 2}, []float64{0.001, 0.002, 0.004}, []float64{0.5, 0.25, 1},
			[]float64{0.9, 0.1, 0.5},
			[]float64{0.5, 0.25, 1}, []float64{0.9, 0.1, 0.5}, nil},
		{"unknown utilization counts as none, and fractions end at 0 and 1", []float64{1, 1, 1},
			[]float64{0.001, 0.001, 0.002}, []float64{nan, 7, -3}, []float64{nan, nan, 2},
			[]float64{0, 1, 0}, []float64{0, 0, 1}, nil},
		{"unknown scores count alike", nil, []float64{0.001, 0.002, 0.004}, nil, nil, zero, zero, nil},
	}
	for _, test := range tests {
		p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 200}, Ranks: 3, Interval: 10,
			Scores: test.scores})
		if err != nil {
			t.Fatal(err)
		}
		base := test.scores
		if base == nil {
			base = []float64{1, 1, 1}
		}
		want := formula(200, base, test.secondsPerSample, test.countsAsUse, test.countsAsMemory, make([]bool, 3))
		if test.want != nil && !slices.Equal(want, test.want) {
			t.Errorf("%s: the formula gives %v, by hand it is %v", test.name, want, test.want)
		}
		d := decide(t, p, steady(test.secondsPerSample, test.utilization, test.memory), p.Start())
		if !d.Changed || !slices.Equal(d.Next, want) {
			t.Errorf("%s: got %v (changed: %v), want %v", test.name, d.Next, d.Changed, want)
		}
	}
}

func TestDynamicTakesTheMeanOfItsWindow(t *testing.T) {
	p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 200}, Ranks: 2, Interval: 4})
	if err != nil {
		t.Fatal(err)
	}
	times := []float64{0.1, 0.1, 0.1, 0.5} // rank 0: mean 0.2 s, half as fast as rank 1 with the same share
	for i, own := range times {
		d, ok := p.Observe(&balancer.Step{Shares: []int{100, 100}, Own: []float64{own, 0.1}, Update: []float64{9, 9},
			Data: []float64{0.01, 0.01}})
		if ok != (i == 3) {
			t.Fatalf("step %d: decided: %v", i, ok)
		}
		// Rank 0 gets the fraction 0.6/2 + 0.4/3, which is 86.67 samples, rounded by largest remainder. The time of the
		// optimizer's update does not count as the rank's own time.
		if want := []int{87, 113}; ok && !slices.Equal(d.Next, want) {
			t.Errorf("got %v, want %v", d.Next, want)
		}
	}
	// The policy must ignore the first step after the change, however long the step takes.
	for i, own := range []float64{1000, 0.2, 0.2, 0.2} {
		d, ok := p.Observe(&balancer.Step{Shares: []int{87, 113}, Own: []float64{own, own}})
		if ok != (i == 3) {
			t.Fatalf("step %d after the change: decided: %v", i, ok)
		}
		none := []float64{0, 0}
		want := formula(200, []float64{1, 1}, []float64{0.2 / 87, 0.2 / 113}, none, none, []bool{false, false})
		if ok && !slices.Equal(d.Next, want) {
			t.Errorf("after the change got %v, want %v", d.Next, want)
		}
	}
}

func TestDynamicStandsStillWhereRanksAreBalanced(t *testing.T) {
	scores := []float64{8, 4, 1}
	p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 260}, Ranks: 3, Interval: 10,
		Scores: scores})
	if err != nil {
		t.Fatal(err)
	}
	want := []int{160, 80, 20}
	if !slices.Equal(p.Start(), want) {
		t.Fatalf("starts with %v, want %v", p.Start(), want)
	}
	// All ranks report equal times per iteration. From these times alone, the ranks would seem equally fast.
	for range 20 {
		d := decide(t, p, steady([]float64{0.001, 0.002, 0.008}, nil, nil), want)
		if d.Changed || !slices.Equal(d.Next, want) {
			t.Fatalf("got %v (%s), want %v", d.Next, d.Reason, want)
		}
	}
}

func TestDynamicKeepsSharesWithinNoise(t *testing.T) {
	o := balancer.Options{Batch: divide.Batch{Total: 400}, Ranks: 2, Interval: 10}
	for _, test := range []struct {
		slower float64 // fraction by which rank 1 is slower
		change bool
	}{{0, false}, {0.05, false}, {0.08, false}, {0.2, true}} {
		// The share changes by about a fifth of this fraction, because performance has the weight 0.4, and both ranks
		// share the change.
		p, err := policies.New("dynamic", o)
		if err != nil {
			t.Fatal(err)
		}
		d := decide(t, p, steady([]float64{0.001, 0.001 * (1 + test.slower)}, nil, nil), p.Start())
		move := math.Abs(float64(d.Next[0]-200)) / 200
		if d.Changed != test.change || d.Changed && move <= 0.02 {
			t.Errorf("a rank slower by %v: got %v (%s), want a change: %v", test.slower, d.Next, d.Reason, test.change)
		}
	}
}

func TestDynamicLeavesOutRanksThatCannotHoldASample(t *testing.T) {
	// The score of a rank without samples must not count. Otherwise the scores of the other ranks would be too small
	// relative to their performance.
	p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 200, Limits: []int{200, 200, 0}},
		Ranks: 3, Interval: 10, Scores: []float64{1, 1, 1000}})
	if err != nil {
		t.Fatal(err)
	}
	d := decide(t, p, steady([]float64{0.001, 0.003, 1}, nil, nil), p.Start())
	want := append(formula(200, []float64{1, 1}, []float64{0.001, 0.003}, []float64{0, 0}, []float64{0, 0},
		[]bool{false, false}), 0)
	if !slices.Equal(d.Next, want) {
		t.Errorf("got %v, want %v", d.Next, want)
	}
}

func TestDynamicWaitsForAllRanks(t *testing.T) {
	p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2, Interval: 2})
	if err != nil {
		t.Fatal(err)
	}
	step := func(own ...float64) func([]int) *balancer.Step {
		return func(shares []int) *balancer.Step { return &balancer.Step{Shares: shares, Own: own} }
	}
	if d := decide(t, p, step(0.1, math.NaN()), p.Start()); d.Changed ||
		d.Reason != "the time of rank 1 was not measured" {
		t.Errorf("got %v (%s), want no change before rank 1 was measured", d.Next, d.Reason)
	}
	if d := decide(t, p, step(0.1, 0.3), p.Start()); !d.Changed {
		t.Errorf("got no change (%s)", d.Reason)
	}
	// While a rank reports no times, its last measured speed must count.
	before := []int{32, 32}
	d := decide(t, p, step(0.1, math.NaN()), before)
	if want := formula(64, []float64{1, 1}, []float64{0.1 / 32, 0.3 / 32}, []float64{0, 0}, []float64{0, 0},
		[]bool{false, false}); !slices.Equal(d.Next, want) {
		t.Errorf("with rank 1 silent got %v, want %v", d.Next, want)
	}
}
