package rebalance

import (
	"fmt"
	"math"
)

// Opening returns the number of steps before the first decision; 0 if the policy never changes shares.
func (b *Balancer) Opening() int {
	if b == nil || b.Policy == nil {
		return 0
	}
	return b.opening
}

// HasCurve reports whether a step-time curve of this rank was known at the start.
func (b *Balancer) HasCurve() bool {
	return b != nil && len(b.known[b.run.Process.Opts.Assignment.Rank].Curve) > 0
}

// OfOracle returns the step time of the best shares divided by the step time of the actual shares, at the latest
// decision. It returns NaN if this fraction is unknown.
func (b *Balancer) OfOracle() float64 {
	if b == nil || b.last == nil {
		return math.NaN()
	}
	return b.last.ShareOfOracle()
}

// Reason returns the reason for the latest decision. It returns "" if there is none.
func (b *Balancer) Reason() string {
	if b == nil || b.last == nil {
		return ""
	}
	return b.last.Reason
}

// warnOfEnd warns if the run ends before the first decision of the policy, and the user chose the policy or its
// interval. The parameter opening is the result of [Balancer.Opening].
func (b *Balancer) warnOfEnd(opening int) {
	a, c := b.run, b.cfg
	left := a.Steps
	if a.Folder != nil && a.Folder.Checkpoint != nil {
		left -= a.Folder.Checkpoint.State.Step
	}
	chosen := c.Origin("balance.policy") != "" || c.Origin("balance.interval") != ""
	if !chosen || a.Process.Opts.Comparison != nil || opening == 0 || left <= 0 || left > int64(opening) {
		return
	}
	b.log().Warn(fmt.Sprintf("policy %s never changes the shares: %d steps remain, and its first decision takes effect after %d steps; lower balance.interval, or train longer",
		c.Balance.Policy, left, opening), "interval", c.Balance.Interval)
}
