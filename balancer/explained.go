package balancer

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Explained returns a policy that makes the decisions of p and explains each of them on step-time curves. It fits the
// curves like policy hybrid, and makes no decision from them. A policy that fits curves explains itself, and Explained
// returns it. o are the options of p.
func Explained(p Policy, o Options) (Policy, error) {
	if _, fits := p.(Learner); fits {
		return p, nil
	}
	o.Objective, o.Bench = Time, false
	h, err := newHybrid(o)
	if err != nil {
		return nil, err
	}
	return &explained{Policy: p, eyes: h.(*hybrid)}, nil
}

type explained struct {
	Policy
	eyes *hybrid // fits the curves
}

// Observe implements [Policy].
func (p *explained) Observe(s *Step) (*Decision, bool) {
	h := p.eyes
	full := h.window.add(s)
	d, due := p.Policy.Observe(s)
	if !due && !full { // a policy may have other intervals
		return d, due
	}
	if h.window.account.Steps() == 0 {
		return d, due
	}
	e := h.watch()
	if due && slices.Equal(e.Shares, d.Shares) {
		d.Explanation = e.Explanation
		h.predict(d)
	}
	return d, due
}

// watch updates the curves with the window, and explains the shares in use without a decision.
func (h *hybrid) watch() *Decision {
	h.learn()
	d := &Decision{Shares: slices.Clone(h.window.shares), Explanation: h.window.explain()}
	missing := h.fit(d)
	h.decisions++
	if missing >= 0 {
		d.Unknown = fmt.Sprintf("the time of rank %d was not measured", missing)
	} else if best, err := divide.Solve(h.opts.Batch, h.curves); err != nil {
		d.Unknown = err.Error()
	} else {
		h.explain(d, best)
	}
	h.window.next()
	return d
}
