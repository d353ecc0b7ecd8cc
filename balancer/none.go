package balancer

import "slices"

// newNone divides the batch equally, as in plain data parallelism.
func newNone(o Options) (Policy, error) {
	return newFixed(o, slices.Repeat([]float64{1}, o.Ranks), "equal shares")
}

// newFixed keeps the shares that it starts with.
func newFixed(o Options, speed []float64, reason string) (Policy, error) {
	shares, err := o.Divide(speed)
	if err != nil {
		return nil, err
	}
	return fixed{Periodic(o, shares, func([]int, []RankView) ([]int, string) { return shares, reason })}, nil
}

// fixed is a policy that never changes shares.
type fixed struct{ Policy }

// Opening implements [Opener].
func (fixed) Opening() int { return 0 }
