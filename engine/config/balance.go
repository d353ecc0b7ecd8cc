package config

// Balance contains the keys of table [balance].
type Balance struct {
	Policy             string // name of a policy of the catalog
	Interval           int    // steps
	Objective          string // "time", "energy" or "cost"
	MaxSlowdownPercent float64
	PowerWatts         []float64 // one value per rank
	IdleWatts          []float64 // one value per rank
	Prices             []float64 // money per hour, one value per rank
	BenchWorthless     bool
	CurveCache         string // "auto" or "off"
	FixedShares        []int  // samples, one value per rank; if set, Policy is not used

	// Options contains the keys that only this policy has. It is nil if the policy has none.
	Options Options

	learning []string // policies of the catalog that read and store step-time curves
}

// Keys implements [Options].
func (b *Balance) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&b.Policy, "policy", "hybrid").OverriddenBy("balance.fixed_shares").
			Doc("The policy that divides the global batch. See the list of policies below."),
		Int(&b.Interval, "interval", 10).Unit("steps").AtLeast(1).OverriddenBy("balance.fixed_shares").
			Doc("Steps between two decisions."),
		Choice(&b.Objective, "objective", "time", "time", "energy", "cost").OverriddenBy("balance.fixed_shares").
			Doc("Quantity that `hybrid` minimises: the time of a step, its energy (with `power_watts`) or its cost (with `prices`)."),
		Float(&b.MaxSlowdownPercent, "max_slowdown_percent", 10).Unit("%").AtMost(1000).Only(
			Is("balance.objective", "energy", "cost")).
			Doc("Maximum slowdown of a step to save energy or cost, relative to the shortest possible step."),
		Floats(&b.PowerWatts, "power_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it computes."),
		Floats(&b.IdleWatts, "idle_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it waits for other ranks. Empty: 30 % of `power_watts`."),
		Floats(&b.Prices, "prices").Unit("an hour").Only(Is("balance.objective", "cost")).
			Doc("Price of each rank per hour, in any currency. A rank costs the same while it computes and while it waits, so the only way to save cost is to exclude ranks (`bench_worthless`)."),
		Bool(&b.BenchWorthless, "bench_worthless", false).Only(Is("balance.objective", "time", "cost")).OverriddenBy(
			"balance.fixed_shares").
			Doc("Excludes a rank if the step is faster without it. An excluded rank gets no samples. The policy tests the rank again from time to time."),
		Choice(&b.CurveCache, "curve_cache", "auto", "auto", "off").
			Only(Is("balance.policy", anys(b.learning)...)).OverriddenBy("balance.fixed_shares").
			Doc("`auto`: `hybrid` starts with the step-time curves of earlier runs of this model on the same type of device, and stores its own. The curves are in `hetero-train/curves` in the user's cache folder. `off`: it neither reads nor stores curves."),
		Ints(&b.FixedShares, "fixed_shares").Unit("samples").
			Doc("Share of each rank; the shares must sum to `data.batch_size`. For tests, and to measure the best fixed shares (the oracle). Empty: `policy` chooses the shares."),
	})
}
