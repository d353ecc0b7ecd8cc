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

// HasCurve reports whether the policy starts with a step-time curve of this rank.
func (b *Balancer) HasCurve() bool {
	return b != nil && len(b.known[b.run.Process.Opts.Assignment.Rank].Curve) > 0
}

// OfOracle returns the fraction of the oracle at the latest decision; NaN if it is unknown.
func (b *Balancer) OfOracle() float64 {
	if b == nil || b.last == nil {
		return math.NaN()
	}
	return b.last.ShareOfOracle()
}

// Reason returns the reason of the latest decision; "" without one.
func (b *Balancer) Reason() string {
	if b == nil || b.last == nil {
		return ""
	}
	return b.last.Reason
}

// warnOfEnd warns if the user chose a policy or its interval, and the run ends before the first decision. opening is
// the number of steps before this decision; 0 if the policy never changes shares.
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
