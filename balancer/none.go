package balancer

import "slices"

// fixed keeps the shares that it starts with.
type fixed struct {
	shares []int
	window *window
	reason string
}

// newNone divides equally, as plain data parallelism does.
func newNone(o Options) (Policy, error) {
	return newFixed(o, slices.Repeat([]float64{1}, o.Ranks), "equal shares")
}

func newFixed(o Options, speed []float64, reason string) (*fixed, error) {
	shares, err := o.Divide(speed)
	if err != nil {
		return nil, err
	}
	return &fixed{shares: shares, window: newWindow(o.Ranks, o.Interval), reason: reason}, nil
}

// Start implements [Policy].
func (f *fixed) Start() []int { return slices.Clone(f.shares) }

// Observe implements [Policy].
func (f *fixed) Observe(s *Step) (*Decision, bool) {
	if !f.window.add(s) {
		return nil, false
	}
	d := &Decision{Shares: slices.Clone(s.Shares), Next: slices.Clone(f.shares), Reason: f.reason, Explanation: f.window.explain()}
	d.Changed = !slices.Equal(d.Next, d.Shares)
	f.window.next()
	return d, true
}
