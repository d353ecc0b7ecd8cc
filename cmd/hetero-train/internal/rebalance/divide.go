package rebalance

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/hybrid"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Divide creates the policy and returns the first shares. The parameter limits has the maximum number of samples of a
// micro-batch that each rank's memory can hold.
func (b *Balancer) Divide(limits []int) ([]int, error) {
	c := b.cfg
	var err error
	if b.Policy, err = b.policy(limits); err != nil {
		return nil, err
	}
	b.opening = balancer.Opening(b.Policy, c.Balance.Interval)
	if b.Policy, err = hybrid.Explained(b.Policy, b.options); err != nil {
		return nil, exit.Usagef("balance: %w", err)
	}
	ranks := len(b.known)
	b.step = balancer.Step{Shares: make([]int, ranks)}
	for _, list := range []*[]float64{&b.step.Own, &b.step.Update, &b.step.Pause, &b.step.Data, &b.step.Utilization,
		&b.step.Memory} {
		*list = make([]float64, ranks)
	}
	b.health, b.observed = make([]telemetry.Window, ranks), make([]straggler.Observation, ranks)
	b.detector, b.healthy = straggler.NewDetector(ranks), straggler.NewReferences(ranks)
	types := make([]string, ranks)
	for rank, k := range b.known {
		types[rank] = k.Device
	}
	b.detector.SetTypes(types)
	if a := b.run; a.Process.Opts.Comparison != nil {
		b.Comparison = newComparison(a, b.Policy.Start(), &b.step, &b.options)
	}
	shares := b.Policy.Start()
	if b.run.Rank.Team.Leads() {
		b.logShares(shares)
		b.warnOfEnd(b.opening)
	}
	return shares, nil
}

// Preview returns the shares that Divide would return for these limits. It changes only the options.
func (b *Balancer) Preview(limits []int) ([]int, error) {
	p, err := b.policy(limits)
	if err != nil {
		return nil, err
	}
	return p.Start(), nil
}

// policy sets the options, which include limits, and returns a policy with these options.
func (b *Balancer) policy(limits []int) (balancer.Policy, error) {
	c := b.cfg
	b.options = balancer.Options{Batch: parts.BatchOf(c), Ranks: len(b.known), Interval: c.Balance.Interval,
		Slowdown: c.Balance.MaxSlowdownPercent / 100, Bench: c.Balance.BenchWorthless}
	b.options.Limits = limits
	b.know()
	p, err := parts.MakePolicy(b.run.Process.Opts.Env.Catalog, &b.run.Process.Cfg.Balance, c.Balance.Policy, b.options)
	hold := 0
	for _, n := range limits {
		hold += n
	}
	if errors.Is(err, divide.ErrInfeasible) && hold < b.options.Batch.Total { // the replica reports too little memory
		return nil, fmt.Errorf("balance: %w", err)
	}
	if err != nil {
		return nil, exit.Usagef("balance: %w", err)
	}
	return p, nil
}

// know adds the properties of the ranks to the options of the policy.
func (b *Balancer) know() {
	c, o := b.cfg.Balance, &b.options
	o.Scores = b.scores
	for rank, k := range b.known { // step times also depend on the element type
		o.Types = append(o.Types, k.Device+"; "+b.run.Rank.Types[rank].Type)
	}
	// Use the curves of one source only. Curves of two sources may differ by a constant factor, and the first shares
	// would then be wrong.
	cached := 0
	for _, k := range b.known {
		if o.Curves = append(o.Curves, k.Curve); len(k.Curve) > 0 {
			cached++
		}
	}
	switch {
	case cached < len(b.known) && b.given.Curves != nil:
		o.Curves, o.CurveErrors = b.given.Curves, b.given.Errors
		if b.run.Rank.Team.Leads() {
			b.log().Info("using the step times of profile.gpu_profiles", "file", b.cfg.Profile.GPUProfiles)
		}
	case cached == 0:
		o.Curves = nil
	}
	switch c.Objective {
	case "energy":
		o.Objective, o.Watts, o.IdleWatts = balancer.Energy, c.PowerWatts, c.IdleWatts
		if len(o.IdleWatts) == 0 {
			for _, w := range o.Watts {
				o.IdleWatts = append(o.IdleWatts, 0.3*w)
			}
		}
	case "cost":
		o.Objective, o.Watts = balancer.Cost, c.Prices
	}
}

// logShares logs the first shares and the memory limits.
func (b *Balancer) logShares(shares []int) {
	log := b.log()
	b.LogBatchSizes(shares, b.cfg.Balance.Policy)
	if effect := b.traits().WithoutScores; b.scores == nil && effect != "" {
		log.Warn(fmt.Sprintf("policy %s has no compute scores (%s): %s; to measure the scores, run hetero-train profile and pass the resulting file with --gpu-profiles",
			b.cfg.Balance.Policy, b.missing, effect))
	}
	for rank, most := range b.options.Limits {
		if shares[rank] == 0 {
			log.Warn(fmt.Sprintf("rank %d gets no samples: its memory can hold only %d samples of a micro-batch, but shares are multiples of %d",
				rank, most, max(b.options.Unit, 1)), "memory", b.known[rank].MemoryBytes)
		} else if most < b.options.Total {
			log.Info(fmt.Sprintf("rank %d can hold %d samples of a micro-batch", rank, most))
		}
	}
}

// LogBatchSizes logs the initial shares of the ranks (samples of a micro-batch).
func (b *Balancer) LogBatchSizes(shares []int, decidedBy string) {
	b.log().Info("Calculated batch sizes: "+sizes(shares), "policy", decidedBy)
	for rank, n := range shares[:min(len(shares), mostNodes)] {
		b.log().Info(fmt.Sprintf("Node %d: batch_size=%d", rank, n))
	}
}

// mostNodes is the largest number of nodes with a line of their own in the log. The line before has all batch sizes.
const mostNodes = 64

// warnOfEnd warns if the run ends before the first decision of the policy, and the user chose the policy or its
// interval. The parameter opening is the result of [Balancer.Opening].
func (b *Balancer) warnOfEnd(opening int) {
	a, c := b.run, b.cfg
	left := a.Steps
	if a.Folder != nil && a.Folder.Checkpoint != nil {
		left -= a.Folder.Checkpoint.State.Step
	}
	chosen := c.Origin("balance.policy") != "" || c.Origin("balance.interval") != ""
	if !chosen || a.Process.Opts.Comparison != nil || opening == 0 || left <= 0 || left > int64(opening) {
		return
	}
	b.log().Warn(fmt.Sprintf("policy %s never changes the shares: %d steps remain, and its first decision takes effect after %d steps; lower balance.interval, or train longer",
		c.Balance.Policy, left, opening), "interval", c.Balance.Interval)
}
