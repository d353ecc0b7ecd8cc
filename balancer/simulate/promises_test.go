package simulate_test

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// A promise states the speed that runs of policy hybrid reach on one kind of clusters. Fractions of the oracle's speed
// are means over the last quarter of the steps. The table "Promises and their tests" in docs/benchmarks/balancing.md
// contains the same figures.
type promise struct {
	median, worst float64 // least fractions of the oracle, over all runs
	low           float64 // fraction of the runs that may end below 0.98 of the oracle
	worse         float64 // fraction of the runs that may end more than one point below equal shares
	deepest       float64 // largest distance below equal shares, as a fraction of the oracle
}

// endings contains the results of simulated runs in their last quarter.
type endings struct {
	shares []float64 // fractions of the oracle, ascending
	below  []float64 // fraction of the oracle with equal shares minus that of the policy; ascending
}

// playAll simulates a run for each seed.
func playAll(t *testing.T, seeds int, cluster func(seed uint64) simulate.Options) endings {
	t.Helper()
	return endingsOf(seeds, func(seed uint64) *simulate.Result { return played(t, cluster(seed)) })
}

// played simulates one run.
func played(t *testing.T, o simulate.Options) *simulate.Result {
	t.Helper()
	res, err := simulate.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// endingsOf returns the endings of the runs of all seeds.
func endingsOf(seeds int, run func(seed uint64) *simulate.Result) (e endings) {
	for seed := range uint64(seeds) {
		res := run(seed)
		e.shares, e.below = append(e.shares, lastQuarter(res)), append(e.below, res.StartShareOfOracle-lastQuarter(res))
	}
	slices.Sort(e.shares)
	slices.Sort(e.below)
	return e
}

// add adds the results of other runs.
func (e *endings) add(other endings) {
	e.shares, e.below = append(e.shares, other.shares...), append(e.below, other.below...)
	slices.Sort(e.shares)
	slices.Sort(e.below)
}

// check logs the endings and compares them with the promise. If the promised fraction is less than one run, it permits
// one run.
func (e endings) check(t *testing.T, name string, p promise) {
	t.Helper()
	n := len(e.shares)
	low, worse := below(e.shares, 0.98), n-below(e.below, 0.01)
	t.Logf("%s, %d runs: median %.4f, 5th percentile %.4f, worst %.4f, %d below 0.98; %d end more than one point below equal shares, the deepest by %.4f",
		name, n,
		e.shares[n/2], e.shares[n/20], e.shares[0], low, worse, max(0, e.below[n-1]))
	if e.shares[n/2] < p.median || e.shares[0] < p.worst {
		t.Errorf("%s: got a median of %.4f and a worst run of %.4f of the oracle, want at least %v and %v", name,
			e.shares[n/2], e.shares[0], p.median, p.worst)
	}
	if float64(low) > max(1, p.low*float64(n)) {
		t.Errorf("%s: got %d of %d runs below 0.98 of the oracle, want at most %v of them", name, low, n, p.low)
	}
	if allowed := p.worse * float64(n); float64(worse) > allowed && (p.worse == 0 || worse > 1) ||
		e.below[n-1] > p.deepest {
		t.Errorf("%s: got %d of %d runs that end more than one point below equal shares, the deepest by %.4f; want at most %v of them, and at most %v",
			name, worse, n,
			e.below[n-1], p.worse, p.deepest)
	}
}
