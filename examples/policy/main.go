// Command policy adds a balancing policy to hetero-train: shares in proportion to recent speed.
package main

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/program"
	"github.com/hetero-train/hetero-train/engine/config"
)

// options contains the keys that only this policy has.
type options struct{ Inertia float64 }

// Keys lists the options, each with its default, limits and description.
func (o *options) Keys() []config.Key {
	return []config.Key{
		config.Float(&o.Inertia, "inertia", 0.5).Below(1).Doc("Weight of the speeds known before an interval.")}
}

// New returns the policy of one rank. All ranks get the same measurements and must make the same decision.
func (o *options) New(b balancer.Options) (balancer.Policy, error) {
	speed := make([]float64, b.Ranks) // speed of each rank in samples/s; 0: not measured yet
	start, err := b.Divide(slices.Repeat([]float64{1}, b.Ranks))
	if err != nil {
		return nil, err
	}
	decide := func(shares []int, ranks []balancer.RankView) ([]int, string) {
		for r, rank := range ranks {
			measured := float64(shares[r]) / rank.Seconds
			switch {
			case !(measured > 0): // NaN: the speed was not measured
			case speed[r] == 0:
				speed[r] = measured
			default:
				speed[r] = o.Inertia*speed[r] + (1-o.Inertia)*measured
			}
		}
		next, err := b.Divide(speed) // Divide respects the memory limits of the ranks and the unit of shares
		if err != nil {
			return nil, fmt.Sprintf("shares stay: %v", err)
		}
		return next, fmt.Sprintf("speeds are %.4g samples/s", speed)
	}
	return policies.Periodic(b, start, decide), nil
}

func main() {
	program.Main(program.Policy{
		Name: "recent",
		Doc:  "in proportion to the ranks' recent speed",
		New:  func() program.PolicyOptions { return new(options) },
	})
}
