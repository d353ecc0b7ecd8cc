package balancer

// newProportional divides by the static compute scores.
func newProportional(o Options) (Policy, error) {
	reason := "by compute scores"
	if o.Scores == nil {
		reason = "no compute scores are known: equal shares"
	}
	return newFixed(o, o.scores(), reason)
}
