package rebalance

import (
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/engine/experiment"
)

// interval is a ratio with its 95 % confidence interval.
type interval struct {
	Ratio experiment.Number `json:"ratio"`
	Low   experiment.Number `json:"low"`
	High  experiment.Number `json:"high"`
}

// ratioInterval returns sum(above) / sum(below) for paired values. It computes the 95 % interval by a bootstrap over
// the pairs.
func ratioInterval(above, below []float64) interval {
	const resamples = 10_000
	n := len(above)
	of := func(pick func(i int) int) float64 {
		a, b := 0.0, 0.0
		for i := range n {
			p := pick(i)
			a, b = a+above[p], b+below[p]
		}
		return a / b
	}
	ratio := of(func(i int) int { return i })
	r := rand.New(rand.NewPCG(1, 2)) // fixed seed, so that equal values give equal intervals
	ratios := make([]float64, resamples)
	for i := range ratios {
		ratios[i] = of(func(int) int { return r.IntN(n) })
	}
	slices.Sort(ratios)
	return interval{experiment.Number(ratio), experiment.Number(ratios[resamples/40]),
		experiment.Number(ratios[resamples-1-resamples/40])}
}
