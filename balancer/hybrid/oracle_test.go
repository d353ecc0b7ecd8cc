package hybrid

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// alone are the groups of ranks without large types.
var alone = newGroups(nil, nil, nil)

func TestShareOfTheOracleFollowsTheErrorsOfTheCurves(t *testing.T) {
	even := func(ranks int, relative float64) (list []prospect) {
		for range ranks {
			list = append(list, prospect{now: 1, best: 1, nowError: relative, bestError: relative, slope: 0.01})
		}
		return list
	}
	uneven := []prospect{{now: 2, best: 1.5, slope: 0.01}, {now: 1, best: 1.5, slope: 0.01}}
	sure := ofOracle(uneven, alone, nil, 1.5, 0, 1)
	if want := (balancer.Fraction{Value: 0.75, Low: 0.75, High: 0.75}); sure != want {
		t.Errorf("curves without error: got %+v, want %+v", sure, want)
	}
	if got := ofOracle(uneven, alone, nil, 1.5, 0.5, 1); math.Abs(got.Value-0.8) > 1e-12 {
		t.Errorf("with half a second of communication: got %+v, want 0.8", got)
	}
	// With divisible samples, the slowest of n ranks is slower than their mean by this number of standard errors: 0.56
	// of 2, 2.35 of 64.
	for ranks, deviations := range map[int]float64{2: 0.56, 64: 2.35} {
		got := ofOracle(even(ranks, 0.01), alone, nil, 1, 0, 0)
		if want := 1 - 0.01*deviations; math.Abs(got.Value-want) > 0.003 ||
			!(got.Low < got.Value && got.Value < got.High) {
			t.Errorf("%d ranks with errors of 1 %%: got %+v, want a value of %.3f within the interval", ranks, got,
				want)
		}
	}
	// One sample costs 0.01 s: with errors of 0.002 s, no rank can take another one. With errors of 0.02 s, some can.
	if got := ofOracle(even(2, 0.002), alone, nil, 1, 0, 1); got != (balancer.Fraction{Value: 1, Low: 1, High: 1}) {
		t.Errorf("errors below the time of a sample: got %+v, want the best shares for sure", got)
	}
	if got := ofOracle(even(2, 0.02), alone, nil, 1, 0, 1); got.Value > 0.995 || got.High != 1 {
		t.Errorf("errors of two samples: got %+v, want a value below 0.995 in an interval up to 1", got)
	}
	unlikely := ofOracle(even(4, 0.001), alone, []unseen{{0.1, 1}}, 1, 0, 1)
	if unlikely.Value < 0.99 || unlikely.Low > 0.9 {
		t.Errorf("tiles with a chance of 10 %%: got %+v, want them in the interval and not in the value", unlikely)
	}
}

// The curves may promise longer times for the shares in use than were measured. The value and the ends of its interval
// then follow the ratio of the times on the curves, and are no negative times.
func TestTheIntervalIsThatOfItsValue(t *testing.T) {
	a := account.Account{Step: 0.1}
	for name, c := range map[string]struct{ now, then, least, most float64 }{
		"fitted times longer than the step":  {0.25, 0.1, 0.03, 0.05},
		"fitted times shorter than the step": {0.05, 0.1, 0.13, 0.17},
	} {
		ranks := []prospect{{now: c.now, best: c.then, nowError: 0.01, bestError: 0.01}, {now: 0.01, best: 0.02}}
		low, high := interval(ranks, alone, a.With)
		if value := a.With(c.now, c.then); !(c.least < low && low <= value && value <= high && high < c.most) {
			t.Errorf("%s: got %v (%v to %v), want an interval within %v to %v", name, value, low, high, c.least, c.most)
		}
	}
}

// The blocks of ranks must not change the numbers that a rank gets: the reference draws one scenario after the other
// from one stream.
func TestBlocksOfRanksDrawOneStream(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for _, count := range []int{1, 7, blockRanks, blockRanks + 1, 3*blockRanks - 5} {
		ranks := make([]prospect, count)
		for r := range ranks {
			p := &ranks[r]
			*p = prospect{now: 1 + random.Float64(), best: 1 + random.Float64(), slope: 0.01 + random.Float64()}
			p.nowError = 0.1 * random.Float64()
			if p.bestError = p.nowError; random.IntN(2) == 0 {
				p.bestError = 0.2 * random.Float64()
			}
			if random.IntN(9) == 0 { // no samples
				p.best, p.bestError = 0, p.nowError
			}
		}
		stream, give := draws(0), gives(ranks)
		parts := make([]float64, scenarios)
		for i := range parts {
			slowest, oracle, more := 0.0, 1.5, math.Inf(1)
			for _, p := range ranks {
				z := stream.next()
				now := p.now + p.nowError*z
				slowest = max(slowest, now)
				if p.best == 0 {
					continue
				}
				more = min(more, now+p.slope)
				off := min(p.nowError, p.bestError) * z
				if p.bestError > p.nowError {
					off += math.Sqrt(p.bestError*p.bestError-p.nowError*p.nowError) * stream.next()
				}
				oracle += off / (p.slope * give)
			}
			if more >= slowest {
				oracle = max(oracle, slowest)
			}
			stream.next() // of the tile
			parts[i] = min(max(oracle/slowest, 0), 1)
		}
		slices.Sort(parts)
		want := balancer.Fraction{Value: (parts[scenarios/2-1] + parts[scenarios/2]) / 2, Low: parts[tail],
			High: parts[scenarios-1-tail]}
		if got := ofOracle(ranks, alone, nil, 1.5, 0, 1); got != want {
			t.Errorf("%d ranks: got %+v, want %+v", count, got, want)
		}
	}
}
