package hybrid

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
)

const (
	// leastGain is the smallest gain of a change of shares, as a fraction of a step. Larger: keeps shares that are
	// nearly the best.
	leastGain = 0.0015
	// gainSigmas is the number of standard deviations of the slowest rank's curve that a change must gain. Larger:
	// follows noise less, and a rank later.
	gainSigmas = 0.6
)

// gain is the gain of a change of shares. fraction and doubt are fractions of a step, or of the energy or cost of a
// step.
type gain struct {
	fraction float64
	doubt    float64 // part of the gain that may be noise
	step     float64 // time of a step with the shares in use, s
	reason   string
}

// gain compares shares with the shares in use, by the objective. A step contains the exposed communication of the
// window, which shares do not change.
func (c *chooser) gain(d *balancer.Decision, next []int, w *window.Window) gain {
	now, curves, exposed := d.Shares, c.model.Cautious(), w.Exposed.Or(0)
	busy, slowest := divide.SlowestScaled(curves, now)
	after, _ := divide.SlowestScaled(curves, next)
	step, sigma := busy+exposed, c.model.Sigma(slowest, now[slowest])
	g := gain{fraction: (busy - after) / step, doubt: gainSigmas * sigma / step, step: step}
	if c.opts.Objective == balancer.Time || c.tooSlow(busy, gainSigmas*sigma/busy) {
		shorter := g.fraction // on the curves with a margin
		if of := d.OfOracle.Value; c.opts.Objective == balancer.Time && of == of {
			shorter = min(shorter, 1-of)
		}
		g.reason = fmt.Sprintf("rank %d is the slowest%s; without noise, the step should get %.1f %% shorter", slowest,
			otherwise(d, slowest, w), 100*shorter)
		return g
	}
	spent := c.spent(now)
	if !(spent > 0) { // there is nothing to save
		g.fraction = 0
		return g
	}
	g.fraction = 1 - c.spent(next)/spent
	if c.opts.Objective == balancer.Energy {
		g.doubt = gainSigmas * c.spentSigma(now, slowest) / spent
	}
	g.reason = fmt.Sprintf("the energy or cost of a step should fall by %.1f %%", 100*g.fraction)
	return g
}

// otherwise says which rank is the slowest by the means of the window, if this clearly is another rank than on the
// curves. The curves follow the newest steps of a rank whose speed changes. A single slow step is not clear: it changes
// no median.
func otherwise(d *balancer.Decision, slowest int, w *window.Window) string {
	const (
		clearly = 3 // standard errors
		fewest  = 3 // steps whose median a single step does not change
	)
	longest := slowest
	for r := range d.Ranks {
		if d.Shares[r] > 0 && d.Ranks[r].Seconds > d.Ranks[longest].Seconds {
			longest = r
		}
	}
	doubt := clearly * math.Hypot(d.Ranks[longest].Error, d.Ranks[slowest].Error)
	if longest == slowest || len(w.Compute[longest]) < fewest {
		return ""
	}
	if !(stat.Median(w.Compute[longest])-stat.Median(w.Compute[slowest]) > doubt) {
		return ""
	}
	return fmt.Sprintf(" on the fitted curves (rank %d by its mean over these steps)", longest)
}

// tooSlow reports whether a step takes longer than the slowdown allows, beyond the noise.
func (c *chooser) tooSlow(seconds, doubt float64) bool {
	fastest, err := divide.SolveScaled(c.opts.Batch, c.model.Cautious())
	if err != nil {
		return false
	}
	shortest, _ := divide.SlowestScaled(c.model.Cautious(), fastest)
	return seconds > shortest*(1+c.opts.Slowdown)*(1+leastGain+doubt)
}

// spentSigma returns the standard deviation of the energy or cost of a step. It comes from each rank's own time and
// from the time of the slowest rank, for which all ranks wait.
func (c *chooser) spentSigma(shares []int, slowest int) float64 {
	variance, idle := 0.0, 0.0
	for r := range shares {
		idle += c.opts.IdleWatts[r]
		if shares[r] > 0 {
			variance += stat.Square((c.opts.Watts[r] - c.opts.IdleWatts[r]) * c.model.Sigma(r, shares[r]))
		}
	}
	return math.Sqrt(variance + stat.Square(idle*c.model.Sigma(slowest, shares[slowest])))
}

// spent returns the energy or cost of a step, by the objective. Excluded ranks cost nothing.
func (c *chooser) spent(shares []int) float64 {
	if c.opts.Objective == balancer.Energy {
		return divide.Spent(divide.Wholes(c.model.Mean()), shares, c.opts.Watts, c.opts.IdleWatts)
	}
	seconds, _ := divide.SlowestScaled(c.model.Mean(), shares)
	return seconds * c.price(shares)
}

// price returns the sum of the prices of the ranks that have samples.
func (c *chooser) price(shares []int) float64 {
	price := 0.0
	for r, n := range shares {
		if n > 0 {
			price += c.opts.Watts[r]
		}
	}
	return price
}
