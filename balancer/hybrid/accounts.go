package hybrid

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// accounts explain how good the shares of a decision are.
type accounts struct {
	*chooser
	equal []int // the shares of policy none
}

// explain adds to a decision how good the shares in use are, compared with the best shares.
func (a *accounts) explain(d *balancer.Decision, best []int, w *window.Window) {
	curves := a.model.Mean()
	if a.opts.Objective != balancer.Time { // the oracle has the shortest step with every objective
		if fastest, err := divide.Solve(a.opts.Batch, curves); err == nil {
			best = fastest
		}
	}
	now, _ := divide.Slowest(curves, d.Shares)
	then, _ := divide.Slowest(curves, best)
	equally, slowest := divide.Slowest(curves, a.equal)
	then = min(then, now) // the margin of the cautious curves costs about a thousandth
	e, exposed := &d.Explanation, w.Exposed.Or(0)
	e.Fitted, e.Oracle = now+exposed, then+exposed
	e.OfOracle, e.Unknown = a.ofOracle(d, best, then, exposed), ""
	if w.Account.Steps() > 0 {
		granularity := max(then-divide.Divisible(a.opts.Total, curves, best, a.limits), 0) / (now + exposed)
		e.Lost = w.Account.Account(account.Split{Oracle: e.OfOracle.Value, Granularity: granularity}, account.Memory{})
		if a.inReach(slowest, a.equal[slowest]) {
			e.Equal = e.Lost.With(now, equally)
		}
	}
}

// inReach reports whether a share is in the reach of the measured shares of a rank. Beyond it, the curve is a guess.
func (a *accounts) inReach(rank, share int) bool {
	return slices.ContainsFunc(a.model.Shares(rank), func(measured float64) bool {
		return measured <= estimate.ReachDown*float64(share) && float64(share) <= estimate.ReachUp*measured
	})
}

// predict adds the time of a step with the next shares to an explained decision.
func (a *accounts) predict(d *balancer.Decision) {
	if e := &d.Explanation; e.Lost.Step > 0 {
		now, _ := divide.Slowest(a.model.Mean(), d.Shares)
		then, _ := divide.Slowest(a.model.Mean(), d.Next)
		e.Predicted = e.Lost.With(now, then)
	}
}

// ofOracle estimates the fraction of the oracle from the posterior.
func (a *accounts) ofOracle(d *balancer.Decision, best []int, then, exposed float64) balancer.Fraction {
	ranks := make([]prospect, len(best))
	for r, curve := range a.model.Mean() {
		p := prospectOf(curve, d.Shares[r], best[r])
		if a.model.Known(r) && d.Shares[r] > 0 {
			p.nowError = d.Ranks[r].Error
		}
		if p.bestError = p.nowError; a.model.Known(r) && best[r] > 0 && best[r] != d.Shares[r] {
			p.bestError = a.model.Sigma(r, best[r])
		}
		unsure := a.model.Unsure(r)
		p.nowError, p.bestError = p.nowError*unsure, p.bestError*unsure
		ranks[r] = p
	}
	return ofOracle(ranks, a.unseen(ranks, best), then, exposed, float64(max(a.opts.Unit, 1)))
}

// unseen lists the tiles that could make ranks faster, and that no measured share fills.
func (a *accounts) unseen(ranks []prospect, best []int) (list []unseen) {
	give := gives(ranks)
	for _, tile := range estimate.AlignedTiles() {
		chance, part := 0.0, 0.0
		for r := range ranks {
			if best[r] > 0 && best[r] >= estimate.Period(tile) && a.model.Untested(tile, r) {
				w := 1 / (ranks[r].slope * give)
				chance, part = chance+w*a.model.Probability(tile, r), part+w
			}
		}
		if part > 0 {
			list = append(list, unseen{chance / part, part})
		}
	}
	return list
}
