package simulate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// A rank whose score promises too much is halved as a straggler by policy dynamic. Its halved share must not clear it, or its share would be restored and
// halved again for ever.
func TestDynamicComesToRest(t *testing.T) {
	runs, restless, most := 0, 0, 0
	for _, ranks := range []int{2, 3, 4, 8} {
		for f, family := range families {
			for seed := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, uint64(f)))
				total := 64 * ranks
				curves := make([]balancer.Curve, ranks)
				for i := range curves {
					curves[i] = family.curve(r, total)
				}
				res, err := simulate.Run(simulate.Options{Policy: "dynamic", Total: total, Curves: curves, Noise: 0.02, Steps: 400, Interval: 10, Seed: seed})
				if err != nil {
					t.Fatal(err)
				}
				if runs++; res.Rebalances > 20 {
					restless++
				}
				most = max(most, res.Rebalances)
			}
		}
	}
	t.Logf("%d runs of 40 decisions: %d with more than 20 rebalances, at most %d", runs, restless, most)
	if restless > 0 {
		t.Error("want none that goes on changing shares")
	}
}
