package scheduler

// Options configure a policy.
type Options struct {
	Explain bool // give each action a reason, which takes time
	Keep    bool // never stop a running job
	// TypeByType makes policy maxmin serve one type of GPU after the other, as Gavel does. The result then depends on
	// the order of the types. Use it to compare the simulator with Gavel's simulator.
	TypeByType bool
	// ShortPlan makes policy gang plan for at most 64 jobs, and start no other job. Use it to measure the effect of
	// longer plans.
	ShortPlan bool
}
