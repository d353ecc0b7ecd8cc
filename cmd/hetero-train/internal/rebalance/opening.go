package rebalance

import "fmt"

// warnOfEnd warns if the user chose a policy or its interval, and the run ends before the first decision. opening is the
// number of steps before this decision; 0 if the policy never changes shares.
func (b *Balancer) warnOfEnd(opening int) {
	a, c := b.run, b.cfg
	left := a.Steps
	if a.Folder != nil && a.Folder.Checkpoint != nil {
		left -= a.Folder.Checkpoint.State.Step
	}
	chosen := c.Origin("balance.policy") != "" || c.Origin("balance.interval") != ""
	if !chosen || a.Opts.Comparison != nil || opening == 0 || left <= 0 || left > int64(opening) {
		return
	}
	b.log().Warn(fmt.Sprintf("policy %s never changes the shares: %d steps remain, and its first decision takes effect after %d steps; lower balance.interval, or train longer",
		c.Balance.Policy, left, opening), "interval", c.Balance.Interval)
}
