package straggler_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/balancer/straggler"
)

// watched runs policy hybrid and a detector with references. The policy divides batches of 256 samples among four
// ranks, and decides every 10 steps. Function step sets the times of one step. Function each gets the verdicts and
// observations of one window.
func watched(t *testing.T, windows int, step func(window int, s *balancer.Step),
	each func(window int, d *balancer.Decision, o []straggler.Observation, v []straggler.Verdict)) (shares []int) {
	t.Helper()
	const ranks = 4
	policy, err := policies.New("hybrid", balancer.Options{Batch: divide.Batch{Total: 256}, Ranks: ranks, Interval: 10})
	if err != nil {
		t.Fatal(err)
	}
	detector, refs := straggler.NewDetector(ranks), straggler.NewReferences(ranks)
	shares = policy.Start()
	for window, number := 0, 0; window < windows; number++ {
		s := &balancer.Step{Shares: shares, Own: make([]float64, ranks), Update: make([]float64, ranks)}
		step(window, s)
		decision, due := policy.Observe(s)
		if !due {
			continue
		}
		observations := make([]straggler.Observation, ranks)
		for i := range observations {
			o := &observations[i]
			o.Seconds, o.Data, o.Link, o.Health = decision.Ranks[i].Seconds, nan, nan, unknownHealth()
			o.Expected, o.ExpectedError = refs.Expect(i, decision.Shares[i])
		}
		verdicts, err := detector.Observe(int64(number), observations)
		if err != nil {
			t.Fatal(err)
		}
		refs.Keep(detector, decision.Shares, policy.(balancer.Learner).Curves(), decision.Ranks)
		each(window, decision, observations, verdicts)
		shares = decision.Next
		window++
	}
	return shares
}

// Policy hybrid reduces the share of a sick rank, and the policy's curve follows the rank's times. The verdict must
// still last exactly as long as the problem.
func TestSicknessIsSeenUnderAPolicyThatFollowsIt(t *testing.T) {
	for _, factor := range []float64{1.25, 1.5, 2.5} {
		const begins, ends = 60, 100
		random := rand.New(rand.NewPCG(21, 22))
		perSample, fixed := []float64{0.002, 0.003, 0.004, 0.006}, 0.02
		shares := watched(t, 140, func(window int, s *balancer.Step) {
			s.Exposed = 0.01
			for i, n := range s.Shares {
				s.Own[i] = (fixed + perSample[i]*float64(n)) * math.Exp(0.03*random.NormFloat64())
				if i == 1 && window >= begins && window < ends {
					s.Own[i] *= factor
				}
				s.Update[i], s.Seconds = 0.002, max(s.Seconds, s.Own[i]+0.012)
			}
		}, func(window int, _ *balancer.Decision, observations []straggler.Observation, verdicts []straggler.Verdict) {
			for _, v := range verdicts {
				sick := v.Kind == straggler.Sick
				switch {
				case v.Rank != 1 && sick:
					t.Errorf("factor %v: window %d: got %+v of a healthy rank", factor, window, v)
				case v.Rank == 1 && sick && (window < begins || window >= ends+3):
					t.Errorf("factor %v: window %d: got %+v", factor, window, v)
				case v.Rank == 1 && !sick && window > begins && window < ends:
					t.Errorf("factor %v: window %d: got %+v of a sick rank: measured %v, expected %v", factor, window,
						v, observations[1].Seconds, observations[1].Expected)
				case v.Rank == 1 && sick && window < ends && math.Abs(v.Ratio/factor-1) > 0.15:
					t.Errorf("factor %v: window %d: got a ratio of %v", factor, window, v.Ratio)
				}
			}
		})
		t.Logf("factor %v: shares at the end %v", factor, shares)
	}
}

func TestReferencesKnowWhereTheyWereMeasured(t *testing.T) {
	r, d := straggler.NewReferences(1), straggler.NewDetector(1)
	if s, e := r.Expect(0, 10); !math.IsNaN(s) || !math.IsNaN(e) {
		t.Errorf("no curve: got %v, %v", s, e)
	}
	if _, err := d.Observe(10, []straggler.Observation{
		{Seconds: 1, Expected: nan, ExpectedError: nan, Link: nan, Data: nan, Health: unknownHealth()}}); err != nil {
		t.Fatal(err)
	}
	r.Keep(d, []int{10}, []divide.Curve{{{Samples: 1, Seconds: 0.1}, {Samples: 20, Seconds: 2}}},
		[]balancer.RankView{{Seconds: 1, Fitted: 1, Error: 0.01}})
	if s, e := r.Expect(0, 10); math.Abs(s-1) > 1e-12 || math.Abs(e-0.01) > 1e-12 {
		t.Errorf("at the share that was measured: got %v, %v, want 1 and 0.01", s, e)
	}
	if s, e := r.Expect(0, 5); math.Abs(s-0.5) > 1e-12 || e < 0.5*0.2*math.Ln2 || e > 0.5*0.15 {
		t.Errorf("at half of it: got %v, %v", s, e)
	}
	if s, _ := r.Expect(0, 0); !math.IsNaN(s) {
		t.Errorf("without samples: got %v", s)
	}
}

// If most ranks become slower, a rank that keeps its speed must not get a verdict.
func TestARankThatStaysAsItIsIsWellWhileTheOthersBecomeSlower(t *testing.T) {
	for seed := range uint64(5) {
		const begins, last = 30, 3
		random := rand.New(rand.NewPCG(seed, 23))
		watched(t, 70, func(window int, s *balancer.Step) {
			for i, n := range s.Shares {
				s.Own[i] = 0.004 * float64(n) * math.Exp(0.01*random.NormFloat64())
				if i != last && window >= begins {
					s.Own[i] *= 1.5
				}
				s.Seconds = max(s.Seconds, s.Own[i])
			}
		}, func(window int, d *balancer.Decision, observations []straggler.Observation, verdicts []straggler.Verdict) {
			for i, o := range observations {
				if fitted := d.Ranks[i].Fitted; window > 1 && math.Abs(fitted/o.Seconds-1) > 0.06 {
					t.Errorf("seed %d: window %d: rank %d: the curve says %.4f s of what took %.4f s", seed, window, i,
						fitted, o.Seconds)
				}
			}
			for _, v := range verdicts {
				if v.Rank == last && v.Kind == straggler.Sick {
					t.Errorf("seed %d: window %d: got %+v of the rank that nothing happened to", seed, window, v)
				}
			}
		})
	}
}
