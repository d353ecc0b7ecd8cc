package policies

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
)

// newNone divides the batch equally, as in plain data parallelism.
func newNone(o balancer.Options) (balancer.Policy, error) {
	return newFixed(o, slices.Repeat([]float64{1}, o.Ranks), "equal shares")
}

// newFixed keeps the shares that it starts with.
func newFixed(o balancer.Options, speed []float64, reason string) (balancer.Policy, error) {
	shares, err := o.Divide(speed)
	if err != nil {
		return nil, err
	}
	return fixed{Periodic(o, shares, func([]int, []balancer.RankView) ([]int, string) { return shares, reason })}, nil
}

// fixed is a policy that never changes shares.
type fixed struct{ balancer.Policy }

// Opening implements [balancer.Opener].
func (fixed) Opening() int { return 0 }
