package policies

import "github.com/hetero-train/hetero-train/balancer"

// newProportional divides the batch by the static compute scores.
func newProportional(o balancer.Options) (balancer.Policy, error) {
	reason := "shares follow the compute scores"
	if o.Scores == nil {
		reason = "equal shares, because no compute scores are known"
	}
	return newFixed(o, o.ScoresOrEqual(), reason)
}
