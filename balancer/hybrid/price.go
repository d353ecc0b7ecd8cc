package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
)

const (
	// payBack is the number of intervals in which a change must repay its price. Larger: changes pay sooner.
	payBack = 10
	// mostPrice is the largest price of a change, as a fraction of the time of payBack intervals. Without it, a jump of
	// the clock would stop the balancing.
	mostPrice = 0.1
	// followPrice is the fraction of the difference by which the price follows each change. Larger: follows noise more.
	followPrice = 0.3
)

// changePrice measures the price of a change of shares: the extra time of the steps in which plans are made, and of the
// first step with the new shares.
type changePrice struct {
	interval float64 // steps
	steady   float64 // time of a step in the last window without a probe, s
	average  float64 // price of a change, averaged over the last ones, s
	extra    float64 // time beyond steady in the current change, s
}

// observe takes a step. before are the shares of the step before.
func (c *changePrice) observe(s *balancer.Step, before []int) {
	changed := before != nil && !slices.Equal(s.Shares, before)
	if c.steady > 0 && (s.Settling || changed) && divide.Measured(s.Seconds) > c.steady {
		c.extra += s.Seconds - c.steady
	}
	if !changed {
		return
	}
	if c.average == 0 {
		c.average = c.extra
	}
	c.average += followPrice * (c.extra - c.average)
	c.average = min(c.average, mostPrice*payBack*c.interval*c.steady)
	c.extra = 0
}

// fraction returns the price of a change divided by the time of the steps in which it must pay, each of step s.
func (c *changePrice) fraction(step float64) float64 {
	return c.average / (payBack * c.interval * step)
}

// tooSlow reports whether the steps with new shares take longer than before by more than probes may, and by a number of
// standard deviations of their mean. noise is the variance of the log of the time of a step.
func (c *changePrice) tooSlow(w *window.Window, noise, sigmas float64) bool {
	return w.Usual() > c.steady*(1+probeCost+sigmas*math.Sqrt(noise/float64(w.Seconds.N)))
}
