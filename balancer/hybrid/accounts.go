package hybrid

import (
	"fmt"
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
	equal []int      // the shares of policy none
	room  []prospect // memory of prospects
}

// explain adds to a decision how good the shares in use are, compared with the best shares.
func (a *accounts) explain(d *balancer.Decision, best []int, w *window.Window) {
	curves := a.model.Mean()
	if a.opts.Objective != balancer.Time { // the oracle has the shortest step with every objective
		if fastest, err := divide.SolveScaled(a.opts.Batch, curves); err == nil {
			best = fastest
		}
	}
	now, _ := divide.SlowestScaled(curves, d.Shares)
	then, _ := divide.SlowestScaled(curves, best)
	then = min(then, now) // the margin of the cautious curves costs about a thousandth
	e, exposed := &d.Explanation, w.Exposed.Or(0)
	e.Fitted, e.Oracle = now+exposed, then+exposed
	e.OfOracle, e.Unknown = a.ofOracle(d, best, then, exposed), ""
	e.Disagreement = a.disagreement(d, best, curves, &measured{own: w.Own, steps: w.Compute, exposed: exposed})
	if w.Account.Steps() > 0 {
		granularity := max(then-divide.Divisible(a.opts.Total, curves, best, a.limits), 0) / (now + exposed)
		e.Lost = w.Account.Account(account.Split{Oracle: e.OfOracle.Value, Granularity: granularity}, account.Memory{})
		a.compareEqual(d, now)
	}
}

// compareEqual adds the time of a step with equal shares: the measured time while they are in use. Otherwise it is
// unknown if a rank that may then be the slowest was never measured around its equal share: beyond its measured shares,
// a curve is a guess. now is the time of a step with the shares in use, on the curves, in s.
func (a *accounts) compareEqual(d *balancer.Decision, now float64) {
	e := &d.Explanation
	if slices.Equal(d.Shares, a.equal) { // measured, so the curves do not matter
		e.Equal, e.EqualLow, e.EqualHigh = e.Lost.Step, e.Lost.Step, e.Lost.Step
		return
	}
	ranks := a.prospects(d, a.equal)
	equally, _ := divide.SlowestScaled(a.model.Mean(), a.equal)
	if e.EqualUnknown = a.guessed(ranks, equally); e.EqualUnknown != "" {
		return
	}
	e.Equal = e.Lost.With(now, equally)
	low, high := interval(ranks, a.groups(ranks), e.Lost.With)
	e.EqualLow, e.EqualHigh = min(low, e.Equal), max(high, e.Equal)
}

// guessed describes the rank that may take longest with its equal share, if it may take as long as the slowest rank, in
// s, and was never measured around this share. It returns "" if there is no such rank.
func (a *accounts) guessed(ranks []prospect, slowest float64) (text string) {
	const sigmas = 1.645 // one-sided 95 %
	for r, p := range ranks {
		longest := p.best + sigmas*p.bestError
		if longest < slowest {
			continue
		}
		equal := float64(a.equal[r])
		least, most := a.model.Range(r)
		if equal >= least && equal <= most {
			continue
		}
		slowest = longest
		measured := fmt.Sprintf("its measured shares are %.0f to %.0f", least, most)
		if most == 0 {
			measured = "it has no measured share"
		}
		text = fmt.Sprintf("the equal share of rank %d is %d samples, and %s", r, a.equal[r], measured)
	}
	return text
}

// predict adds the time of a step with the next shares to an explained decision.
func (a *accounts) predict(d *balancer.Decision) {
	if e := &d.Explanation; e.Lost.Step > 0 {
		now, _ := divide.SlowestScaled(a.model.Mean(), d.Shares)
		then, _ := divide.SlowestScaled(a.model.Mean(), d.Next)
		e.Predicted = e.Lost.With(now, then)
	}
}

// prospects returns the expected times of the shares in use and of other shares. They are valid until the next call.
func (a *accounts) prospects(d *balancer.Decision, best []int) []prospect {
	if a.room == nil {
		a.room = make([]prospect, len(best))
	}
	ranks := a.room
	curves := a.model.Mean()
	for r := range curves {
		curve := &curves[r]
		p := prospectOf(curve, d.Shares[r], best[r])
		if a.model.Known(r) && d.Shares[r] > 0 {
			p.nowError = d.Ranks[r].Error
		}
		if p.bestError = p.nowError; a.model.Known(r) && best[r] > 0 && best[r] != d.Shares[r] {
			p.bestError = a.model.Sigma(r, best[r])
			var shared float64
			shared, p.group = a.model.Shared(r, best[r])
			p.shared = shared * p.best
		}
		p.room = float64(a.limits[r] - best[r])
		if p.level = a.model.Level(r); p.level.Class > 0 {
			next := best[r] + max(a.opts.Unit, 1)
			p.next = curve.At(float64(next))
			if best[r] == d.Shares[r] {
				p.nextClass = a.model.ClassWith(r, next)
			}
		}
		if p.level.Class == 0 { // otherwise the level replaces nowError, and the shape has not moved towards the type
			unsure := a.model.Unsure(r)
			p.nowError, p.bestError = p.nowError*unsure, p.bestError*unsure
		}
		ranks[r] = p
	}
	return ranks
}

// ofOracle estimates the fraction of the oracle from the posterior.
func (a *accounts) ofOracle(d *balancer.Decision, best []int, then, exposed float64) balancer.Fraction {
	ranks := a.prospects(d, best)
	return ofOracle(ranks, a.groups(ranks), a.unseen(ranks, best), then, exposed, float64(max(a.opts.Unit, 1)))
}

func (a *accounts) groups(ranks []prospect) groups {
	return newGroups(ranks, a.model.Classes(), a.model.Spread)
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
