package policies

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
)

// Periodic returns a policy that starts with the shares in start, and calls decide after each interval. decide gets the
// shares in use and the measurements of each rank: means over the steps of the interval, without the first step after a
// change of shares. It returns the next shares and the reason, or nil to keep the shares. [divide.Batch.Divide]
// converts speeds to shares.
//
// decide must depend only on its arguments and on earlier calls, because every rank calls it and must get the same
// result.
func Periodic(o balancer.Options, start []int, decide func(shares []int, ranks []balancer.RankView) (next []int,
	reason string)) balancer.Policy {
	return &periodic{opts: o, start: slices.Clone(start), window: window.New(o.Ranks, o.Interval), decide: decide}
}

type periodic struct {
	opts   balancer.Options
	start  []int
	window *window.Window
	decide func(shares []int, ranks []balancer.RankView) (next []int, reason string)
}

// Start implements [balancer.Policy].
func (p *periodic) Start() []int { return slices.Clone(p.start) }

// Observe implements [balancer.Policy].
func (p *periodic) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	if !p.window.Add(s) {
		return nil, false
	}
	d := &balancer.Decision{Shares: slices.Clone(s.Shares), Explanation: p.window.Explain()}
	next, reason := p.decide(slices.Clone(d.Shares), d.Ranks)
	if d.Next, d.Reason = slices.Clone(next), reason; next == nil {
		d.Stay(&p.opts, p.start)
	}
	d.Changed = !slices.Equal(d.Next, d.Shares)
	p.window.Next()
	return d, true
}
