package hybrid_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/hybrid"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// TestEveryPolicyIsExplained: with every policy, the explanation names the fraction of the oracle, and its interval
// contains the true one. The decisions are those of the policy alone.
func TestEveryPolicyIsExplained(t *testing.T) {
	o := balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 3, Interval: 10, Scores: []float64{1, 2, 3}}
	for _, name := range []string{"none", "proportional", "dynamic"} {
		curves := []func(float64) float64{line(0.004, 0.001), line(0.004, 0.003), line(0.004, 0.002)}
		alone, seen := newCluster(3, 0.01, curves...), newCluster(3, 0.01, curves...)
		alone.exposed, seen.exposed = 0.01, 0.01
		p, err := policies.New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := policies.New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		e, err := hybrid.Explained(inner, o)
		if err != nil {
			t.Fatal(err)
		}
		want, got := alone.run(p, 100, nil), seen.run(e, 100, nil)
		if len(got) != len(want) || len(got) < 5 {
			t.Fatalf("%s: got %d decisions, want the %d of the policy alone", name, len(got), len(want))
		}
		for i := range got {
			d := got[i]
			if !slices.Equal(d.Next, want[i].Next) || d.Reason != want[i].Reason {
				t.Errorf("%s: decision %d: got %v (%s), want %v (%s)", name, i, d.Next, d.Reason, want[i].Next,
					want[i].Reason)
			}
			if !(d.OfOracle.Value > 0 && d.OfOracle.Value <= 1) || d.Unknown != "" ||
				d.Ranks[0].Fitted != d.Ranks[0].Fitted {
				t.Fatalf("%s: decision %d: got %+v, want a known fraction", name, i, d.Explanation)
			}
			world := alone.curves(64)
			best, err := divide.Solve(o.Batch, world)
			if err != nil {
				t.Fatal(err)
			}
			then, _ := divide.Slowest(world, best)
			now, _ := divide.Slowest(world, d.Shares)
			of := (then + alone.exposed) / (now + alone.exposed)
			if i > 10 && (of < d.OfOracle.Low-0.05 || of > d.OfOracle.High+0.05) {
				t.Errorf("%s: step %d: got %+v of the oracle, want %.3f in it", name, i, d.OfOracle, of)
			}
		}
	}
	same := mustNew(t, "hybrid", o)
	if got, err := hybrid.Explained(same, o); err != nil || got != same {
		t.Errorf("hybrid: got %v, %v, want the policy itself", got, err)
	}
}

func TestAnUnknownFractionHasAReason(t *testing.T) {
	o := balancer.Options{Batch: divide.Batch{Total: 8}, Ranks: 2, Interval: 2}
	p, err := hybrid.Explained(mustNew(t, "none", o), o)
	if err != nil {
		t.Fatal(err)
	}
	step := balancer.Step{Shares: []int{4, 4}, Own: []float64{0.1, math.NaN()}, Seconds: 0.1}
	for range 2 {
		if d, due := p.Observe(&step); due && (!strings.Contains(d.Unknown, "rank 1 was not measured") ||
			d.OfOracle.Value == d.OfOracle.Value) {
			t.Errorf("got %+v, want the reason that rank 1 was not measured", d.Explanation)
		}
	}
}

// The expected gain of a change contains communication, so it is not more than the fraction of the oracle allows.
func TestTheGainIsWhatTheFractionAllows(t *testing.T) {
	c := newCluster(7, 0, line(0, 0.001), line(0, 0.004))
	c.exposed = 1 // most of a step
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2})
	d := last(c.run(p, 1, nil))
	if !d.Changed {
		t.Fatalf("got %+v, want a change", d)
	}
	_, after, found := strings.Cut(d.Reason, "should get ")
	var percent float64
	if !found {
		t.Fatalf("got the reason %q", d.Reason)
	}
	if _, err := fmt.Sscanf(after, "%f", &percent); err != nil || percent > 100*(1-d.OfOracle.Value)+0.05 ||
		percent > 100*0.128/1.128 {
		t.Errorf("got the reason %q with %.1f %% of the oracle, %v", d.Reason, 100*d.OfOracle.Value, err)
	}
}

// Curves far from measured shares are guesses, so they give no gain.
func TestTheGainIsUnknownFarFromMeasuredShares(t *testing.T) {
	options := balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2}
	c := newCluster(7, 0, line(0, 0.001), line(0, 0.004))
	d := last(c.run(mustNew(t, "hybrid", options), 40, nil))
	gain, low, high := d.Gain()
	if want := 0.128 / d.Explanation.Seconds; !(math.Abs(gain-want) < 0.03 && low <= gain && gain <= high &&
		low > gain-0.3 && high < gain+0.3) || d.EqualUnknown != "" {
		t.Errorf("after equal shares at the start: got a gain of %v (%v to %v), %q, want %v", gain, low, high,
			d.EqualUnknown, want)
	}
	options.Scores = []float64{15, 1} // rank 1 has 4 samples at first, and never comes near 32
	d = last(c.run(mustNew(t, "hybrid", options), 3, nil))
	if gain, low, high := d.Gain(); gain == gain || low == low || high == high || d.Predicted != d.Predicted ||
		!strings.Contains(d.EqualUnknown, "the equal share of rank 1 is 32 samples") {
		t.Errorf("got shares %v, a gain of %v, %q and a prediction of %v, want no gain, the reason and a prediction",
			d.Shares, gain, d.EqualUnknown, d.Predicted)
	}
}

// While the shares are equal, the gain is 1, also if the curves do not agree with the measured steps.
func TestEqualSharesGainNothing(t *testing.T) {
	o := balancer.Options{Batch: divide.Batch{Total: 48}, Ranks: 2, Interval: 1}
	p, err := hybrid.Explained(mustNew(t, "none", o), o)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for i := range 30 {
		slow := 0.2 * float64(1+i%3)
		own := []float64{slow, 0.1}
		d, due := p.Observe(&balancer.Step{Shares: []int{24, 24}, Own: own, Seconds: slow + 0.01})
		if !due {
			continue
		}
		if gain, low, high := d.Gain(); gain == gain {
			if known++; gain != 1 || low != 1 || high != 1 {
				t.Errorf("step %d: got a gain of %v (%v to %v), want 1", i+1, gain, low, high)
			}
		}
	}
	if known == 0 {
		t.Error("no decision knows the gain")
	}
}

// shifts is a policy whose shares are given for each interval.
type shifts struct {
	shares [][]int
	steps  int
}

const shiftSteps = 10

func (p *shifts) Start() []int { return p.shares[0] }

func (p *shifts) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	if p.steps++; p.steps%shiftSteps != 0 {
		return nil, false
	}
	next := p.shares[p.steps/shiftSteps%len(p.shares)]
	return &balancer.Decision{Shares: slices.Clone(s.Shares), Next: next, Changed: true,
		Explanation: balancer.Unexplained(len(next))}, true
}

// A rank with a CPU quota has a flat curve up to its largest measured share. With equal shares, it would be the
// slowest, although the curves name another rank.
func TestTheGainIsUnknownIfAnyRankFarFromItsMeasuredSharesMayBeTheSlowest(t *testing.T) {
	quota := func(samples float64) float64 { return 0.05 + max(samples-12, 0)*0.02 }
	c := newCluster(3, 0.005, line(0.005, 0.0036), line(0.005, 0.0036), line(0.005, 0.0036), quota)
	o := balancer.Options{Batch: divide.Batch{Total: 128}, Ranks: 4, Interval: shiftSteps}
	p, err := hybrid.Explained(&shifts{shares: [][]int{{28, 40, 48, 12}, {40, 52, 28, 8}, {54, 28, 36, 10}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	d := last(c.run(p, 200, nil))
	if gain, _, _ := d.Gain(); gain == gain || !strings.Contains(d.EqualUnknown,
		"the equal share of rank 3 is 32 samples, and its measured shares are 8 to 12") {
		t.Errorf("got a gain of %v, %q, want none because of rank 3", gain, d.EqualUnknown)
	}
}

func TestHybridExplainsTheStep(t *testing.T) {
	for _, exposed := range []float64{0, 0.03} {
		c := newCluster(2, 0.02, line(0.01, 0.001), line(0.01, 0.002), line(0.02, 0.0005))
		c.exposed = exposed
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 100, Unit: 8}, Ranks: 3})
		for i, d := range c.run(p, 400, nil) {
			e := d.Explanation
			named := 0.0
			for _, part := range e.Lost.Parts() {
				named += part.Seconds
			}
			if math.Abs(named-e.Seconds) > 1e-9 {
				t.Errorf("step %d: the parts of %+v sum to %.5f s, want %.5f", i, e.Lost, named, e.Seconds)
			}
			// Without noise, the step is shorter by the imbalance with the best shares.
			if whole := e.Seconds - e.Lost.Noise; math.Abs(whole-e.Lost.Imbalance-whole*e.OfOracle.Value) > 1e-9 {
				t.Errorf("step %d: got an imbalance of %.5f s of %.5f, and %.4f of the oracle", i, e.Lost.Imbalance,
					whole, e.OfOracle.Value)
			}
			if math.Abs(e.Lost.Communication-exposed) > 1e-12 || e.Lost.Granularity < 0 ||
				e.Lost.Granularity > e.Oracle-exposed {
				t.Errorf("step %d: got %+v lost", i, e.Lost)
			}
			if !(e.Oracle > exposed && e.Oracle <= e.Fitted) {
				t.Errorf(
					"got %g s with the best shares and %g s with the shares in use, both fitted; want at most as much",
					e.Oracle, e.Fitted)
			}
			if share := e.ShareOfOracle(); !(share > 0 && share <= 1) {
				t.Errorf("step %d: fraction of the oracle %v", i, share)
			}
			for r, view := range e.Ranks {
				most := 0.05
				if i == 0 { // the first step also contains the start of the program
					most = 0.15
				}
				if math.Abs(view.Fitted-view.Seconds) > 0.05*view.Seconds ||
					!(view.Error > 0 && view.Error < most*view.Seconds) {
					t.Errorf("step %d: rank %d: got %+v", i, r, view)
				}
			}
		}
	}
}

func TestExplanationNamesImbalanceAndGranularity(t *testing.T) {
	// Without noise: ranks of 1 and 3 ms a sample, that begin with 30 samples each. The best shares are 45 and 15, 45
	// ms.
	c := newCluster(1, 0, line(0, 0.001), line(0, 0.003))
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 60}, Ranks: 2})
	d := last(c.run(p, 1, nil))
	if l := d.Lost; math.Abs(d.Seconds-0.09) > 1e-9 ||
		math.Abs(l.Useful+l.Imbalance+l.Noise+l.Granularity-d.Seconds) > 1e-9 || l.Imbalance < 0.03 ||
		l.Imbalance > 0.05 {
		t.Errorf(
			"got %+v, want 0.09 s of which 0.03 to 0.05 are lost to imbalance, as long as one share of each is known",
			d.Explanation)
	}
	if want := 1 - 0.03/0.09; math.Abs(d.Imbalance-want) > 1e-9 {
		t.Errorf("got imbalance %v, want %v", d.Imbalance, want)
	}
	// In groups of 16 the best are 48 and 16 of 64, 48 ms, and divisible samples would take the same; of 80 they are 64
	// and 16, 64 ms against 60.
	for total, granularity := range map[int]float64{64: 0, 80: 0.004} {
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: total, Unit: 16}, Ranks: 2})
		d := last(c.run(p, 1000, nil))
		if math.Abs(d.Lost.Granularity-granularity) > 0.002 {
			t.Errorf("%d samples in groups of 16, %v: granularity costs %v s, want %v", total, d.Shares,
				d.Lost.Granularity, granularity)
		}
	}
}
