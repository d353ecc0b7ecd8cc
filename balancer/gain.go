package balancer

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// gain is the gain of a change of shares. All values are fractions of a step, or of the energy or cost of a step.
type gain struct {
	fraction float64
	doubt    float64 // part of the gain that may be noise
	cost     float64 // cost of the change itself, divided by the number of intervals in which the change must pay
	reason   string
}

// gain compares shares with the shares in use, by the objective. A step contains exposed communication, which shares do
// not change.
func (h *hybrid) gain(d *Decision, next []int) gain {
	now, exposed := d.Shares, h.window.exposed.Or(0)
	busy, slowest := divide.Slowest(h.sure, now)
	after, _ := divide.Slowest(h.sure, next)
	before := busy + exposed
	g := gain{fraction: (busy - after) / before, doubt: gainSigmas * h.sigma(slowest, now) / before,
		cost: h.change / (payBack * float64(h.opts.Interval) * before)}
	if h.opts.Objective == Time || h.tooSlow(busy, gainSigmas*h.sigma(slowest, now)/busy) {
		shorter := g.fraction // on the curves with a margin
		if of := d.OfOracle.Value; h.opts.Objective == Time && of == of {
			shorter = min(shorter, 1-of)
		}
		g.reason = fmt.Sprintf("rank %d is the slowest; without noise, the step should get %.1f %% shorter", slowest, 100*shorter)
		return g
	}
	spent := h.spent(now)
	if !(spent > 0) { // there is nothing to save
		g.fraction = 0
		return g
	}
	g.fraction = 1 - h.spent(next)/spent
	if h.opts.Objective == Energy {
		g.doubt = gainSigmas * h.spentSigma(now, slowest) / spent
	}
	g.reason = fmt.Sprintf("the energy or cost of a step should fall by %.1f %%", 100*g.fraction)
	return g
}

// tooSlow reports whether a step takes longer than the slowdown allows, beyond the noise.
func (h *hybrid) tooSlow(seconds, doubt float64) bool {
	fastest, err := divide.Solve(h.opts.Batch, h.sure)
	if err != nil {
		return false
	}
	shortest, _ := divide.Slowest(h.sure, fastest)
	return seconds > shortest*(1+h.opts.Slowdown)*(1+leastGain+doubt)
}

// spentSigma returns the standard deviation of the energy or cost of a step. It comes from each rank's own time and
// from the time of the slowest rank, for which all ranks wait.
func (h *hybrid) spentSigma(shares []int, slowest int) float64 {
	variance, idle := 0.0, 0.0
	for r := range h.ranks {
		idle += h.opts.IdleWatts[r]
		if shares[r] > 0 {
			variance += stat.Square((h.opts.Watts[r] - h.opts.IdleWatts[r]) * h.sigma(r, shares))
		}
	}
	return math.Sqrt(variance + stat.Square(idle*h.sigma(slowest, shares)))
}

// sigma is the standard deviation of a rank's time with its share, s.
func (h *hybrid) sigma(rank int, shares []int) float64 {
	return h.ranks[rank].shape.sigma(float64(shares[rank]))
}

// spent returns the energy or cost of a step, by the objective. Excluded ranks cost nothing.
func (h *hybrid) spent(shares []int) float64 {
	if h.opts.Objective == Energy {
		return divide.Spent(h.curves, shares, h.opts.Watts, h.opts.IdleWatts)
	}
	seconds, _ := divide.Slowest(h.curves, shares)
	return seconds * h.price(shares)
}

// price returns the sum of the prices of the ranks that have samples.
func (h *hybrid) price(shares []int) float64 {
	price := 0.0
	for r, n := range shares {
		if n > 0 {
			price += h.opts.Watts[r]
		}
	}
	return price
}
