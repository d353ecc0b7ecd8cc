package hybrid

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Explained returns a policy that makes the decisions of p and explains each of them on step-time curves. It fits the
// curves like policy hybrid, and makes no decision from them. A policy that fits curves explains itself, and Explained
// returns it. o are the options of p.
func Explained(p balancer.Policy, o balancer.Options) (balancer.Policy, error) {
	if _, fits := p.(balancer.Learner); fits {
		return p, nil
	}
	o.Objective, o.Bench = balancer.Time, false
	h, err := newPolicy(o)
	if err != nil {
		return nil, err
	}
	return &explained{Policy: p, observer: h}, nil
}

type explained struct {
	balancer.Policy
	observer *policy // fits the curves
}

// Curves implements [balancer.Learner].
func (p *explained) Curves() []divide.Curve { return p.observer.Curves() }

// Observe implements [balancer.Policy].
func (p *explained) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	full := p.observer.window.Add(s)
	d, due := p.Policy.Observe(s)
	if !due && !full { // a policy may have other intervals
		return d, due
	}
	if p.observer.window.Account.Steps() == 0 {
		return d, due
	}
	e := p.observer.watch()
	if due && slices.Equal(e.Shares, d.Shares) {
		d.Explanation = e.Explanation
		p.observer.accounts.predict(d)
	}
	return d, due
}

// watch updates the curves with the window, and explains the shares in use without a decision.
func (p *policy) watch() *balancer.Decision {
	p.learn()
	d := &balancer.Decision{Shares: slices.Clone(p.window.Shares), Explanation: p.window.Explain()}
	if unknown := p.fit(d); unknown != "" {
		d.Unknown = unknown
	} else if best, err := divide.SolveScaled(p.opts.Batch, p.model.Mean()); err != nil {
		d.Unknown = err.Error()
	} else {
		p.accounts.explain(d, best, p.window)
	}
	p.window.Next()
	return d
}
