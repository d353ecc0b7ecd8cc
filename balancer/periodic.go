package balancer

import "slices"

// Periodic returns a policy that starts with the shares start and asks decide for the next ones after each interval.
// decide gets the shares in use and the measurements of each rank in the interval: means over its steps, without the
// first step after a change of shares. It returns the next shares and the reason, or nil to keep the shares.
// [Batch.Divide] converts speeds to shares.
//
// decide must depend only on its arguments and on earlier calls, because every rank calls it and must get the same
// result.
func Periodic(o Options, start []int, decide func(shares []int, ranks []RankView) (next []int, reason string)) Policy {
	return &periodic{opts: o, start: slices.Clone(start), window: newWindow(o.Ranks, o.Interval), decide: decide}
}

type periodic struct {
	opts   Options
	start  []int
	window *window
	decide func(shares []int, ranks []RankView) (next []int, reason string)
}

// Start implements [Policy].
func (p *periodic) Start() []int { return slices.Clone(p.start) }

// Observe implements [Policy].
func (p *periodic) Observe(s *Step) (*Decision, bool) {
	if !p.window.add(s) {
		return nil, false
	}
	d := &Decision{Shares: slices.Clone(s.Shares), Explanation: p.window.explain()}
	next, reason := p.decide(slices.Clone(d.Shares), d.Ranks)
	if d.Next, d.Reason = slices.Clone(next), reason; next == nil {
		d.stay(&p.opts, p.start)
	}
	d.Changed = !slices.Equal(d.Next, d.Shares)
	p.window.next()
	return d, true
}
