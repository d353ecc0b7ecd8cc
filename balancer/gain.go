package balancer

import (
	"fmt"
	"math"
)

// gain is what a change of shares brings. All are fractions of a step, or of what a step spends.
type gain struct {
	fraction float64
	doubt    float64 // how much of it may be noise
	cost     float64 // what the change itself costs, spread over the intervals in which it must pay
	reason   string
}

// gain compares shares with those in use, by the objective.
func (h *hybrid) gain(now, next []int) gain {
	before, slowest := Slowest(h.sure, now)
	after, _ := Slowest(h.sure, next)
	g := gain{fraction: 1 - after/before, doubt: gainSigmas * h.sigma(slowest, now) / before,
		cost: h.change / (payBack * float64(h.opts.Interval) * before)}
	if h.opts.Objective == Time || h.tooSlow(before, g.doubt) {
		g.reason = fmt.Sprintf("rank %d is the slowest; the step should get %.1f %% shorter", slowest, 100*g.fraction)
		return g
	}
	spent := h.spent(now)
	if !(spent > 0) { // nothing is left to be saved
		g.fraction = 0
		return g
	}
	g.fraction = 1 - h.spent(next)/spent
	if h.opts.Objective == Energy {
		g.doubt = gainSigmas * h.spentSigma(now, slowest) / spent
	}
	g.reason = fmt.Sprintf("a step takes %.1f %% less of what is to be saved", 100*g.fraction)
	return g
}

// tooSlow reports whether a step takes longer than the slowdown allows, noise aside.
func (h *hybrid) tooSlow(seconds, doubt float64) bool {
	fastest, err := Solve(h.opts.Batch, h.sure)
	if err != nil {
		return false
	}
	shortest, _ := Slowest(h.sure, fastest)
	return seconds > shortest*(1+h.opts.Slowdown)*(1+leastGain+doubt)
}

// spentSigma is the standard deviation of what a step spends: of each rank's own time, and of the slowest one's, for which all wait.
func (h *hybrid) spentSigma(shares []int, slowest int) float64 {
	variance, idle := 0.0, 0.0
	for r := range h.ranks {
		idle += h.opts.IdleWatts[r]
		if shares[r] > 0 {
			variance += square((h.opts.Watts[r] - h.opts.IdleWatts[r]) * h.sigma(r, shares))
		}
	}
	return math.Sqrt(variance + square(idle*h.sigma(slowest, shares)))
}

// sigma is the standard deviation of a rank's time with its share, s.
func (h *hybrid) sigma(rank int, shares []int) float64 {
	return h.ranks[rank].shape.sigma(float64(shares[rank]))
}
