package simulate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// If the score of a rank is too high, policy dynamic marks the rank as a straggler and halves its share. With half the
// share, the rank must remain a straggler. Otherwise the policy would restore and halve the share endlessly.
func TestDynamicComesToRest(t *testing.T) {
	for _, scores := range []bool{false, true} {
		runs, restless, swinging := 0, 0, 0
		for _, ranks := range []int{2, 3, 4, 8} {
			for f, family := range families {
				for seed := range uint64(40) {
					r := rand.New(rand.NewPCG(seed, uint64(f)))
					total := 64 * ranks
					curves := make([]divide.Curve, ranks)
					for i := range curves {
						curves[i] = family.curve(r, total)
					}
					o := simulate.Options{Policy: "dynamic", Total: total, Curves: curves, Noise: 0.02, Steps: 400,
						Interval: 10, Seed: seed}
					if scores { // scores are typically wrong by a factor of 2
						o.Knows = func(o *balancer.Options) {
							for _, c := range curves {
								o.Scores = append(o.Scores, 64/c.At(64)*math.Exp(0.7*r.NormFloat64()))
							}
						}
					}
					res := played(t, o)
					if runs++; res.Rebalances > 20 {
						restless++
					}
					if swings(res.History) >= 8 {
						swinging++
					}
				}
			}
		}
		t.Logf("wrong scores %v: %d runs of 40 decisions: %d with more than 20 rebalances, %d with 8 or more swings",
			scores, runs, restless, swinging)
		// With wrong scores, the shares of some ranks alternate by two samples at a step of the curve.
		if most := map[bool]int{false: 0, true: 12}[scores]; restless > most || swinging > 10 {
			t.Errorf("wrong scores %v: got %d runs that go on changing shares and %d in which a share swings, want at most %d and 10",
				scores, restless, swinging, most)
		}
	}
}

// swings counts the changes of a share by more than two fifths and more than five samples.
func swings(history []simulate.Change) (n int) {
	for i := 1; i < len(history); i++ {
		for rank, now := range history[i].Shares {
			before := history[i-1].Shares[rank]
			if high, low := max(now, before), min(now, before); 5*high > 7*low && high-low > 5 {
				n++
				break
			}
		}
	}
	return n
}
