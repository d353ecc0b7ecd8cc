package hybrid

import (
	"math"
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
