package simulate_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// The policy starts with compute scores that have errors of up to 10 %, or with curves of an earlier run. The curves
// have errors of up to 3 %, and all their times are wrong by one common factor.
func TestHybridIsSteadyWithinThreeRebalancesOfWhatIsKnown(t *testing.T) {
	const ranks, total, allowed = 8, 512, 3
	knowledge := map[string]func(r *rand.Rand, curves []divide.Curve, o *balancer.Options){
		"compute scores": func(r *rand.Rand, curves []divide.Curve, o *balancer.Options) {
			for _, c := range curves {
				o.Scores = append(o.Scores, 64/c.At(64)*(0.9+0.2*r.Float64()))
			}
		},
		"curves": func(r *rand.Rand, curves []divide.Curve, o *balancer.Options) {
			height := 0.7 + 0.6*r.Float64()
			for _, c := range curves {
				var known divide.Curve
				for b := 4.0; b <= 256; b *= 2 {
					known = append(known,
						divide.Point{Samples: b, Seconds: c.At(b) * height * (0.97 + 0.06*r.Float64())})
				}
				o.Curves = append(o.Curves, known)
			}
		},
	}
	for name, tell := range knowledge {
		for f, family := range families {
			if family.name == "stepped" {
				continue // scores and curves do not contain the positions of the steps in the curves
			}
			var settled []int
			var slow []float64 // steps lost, by run
			for seed := range uint64(10) {
				r := rand.New(rand.NewPCG(seed, uint64(f)))
				curves := make([]divide.Curve, ranks)
				for i := range curves {
					curves[i] = family.curve(r, total)
				}
				res := played(t, simulate.Options{Policy: "hybrid", Total: total, Curves: curves, Noise: 0.01,
					Steps: 250, Interval: 10, Seed: seed,
					Knows: func(o *balancer.Options) { tell(r, curves, o) }})
				last, changes, probe := 0, 0, false
				for _, h := range res.History { // probes do not count: the known speeds give no information about tiles
					was := probe
					if probe = strings.HasPrefix(h.Reason, "a probe"); probe || was {
						continue
					}
					if changes++; h.ShareOfOracle < 0.99 {
						last = changes + 1
					}
				}
				settled = append(settled, last)
				slow = append(slow, lost(res))
			}
			slices.Sort(settled)
			slices.Sort(slow)
			t.Logf("%s, %s: rebalances until 99 %% for good: %v; steps lost: median %.1f, most %.1f", name, family.name,
				settled, slow[len(slow)/2], slow[len(slow)-1])
			if settled[len(settled)-1] > allowed {
				t.Errorf("%s, %s: %v rebalances until the fraction of the oracle stays at 99 %%, want at most %d", name,
					family.name, settled, allowed)
			}
		}
	}
}
