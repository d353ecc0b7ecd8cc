package analysis

import (
	"math"
	"testing"
)

func TestAnUnknownGainHasAReason(t *testing.T) {
	known := Decision{Step: 8, StepSeconds: 1, EqualSeconds: 2, EqualLow: 2, EqualHigh: 2, ShareOfOracle: unknown}
	far := Decision{Step: 100, StepSeconds: 1, EqualSeconds: unknown, ShareOfOracle: unknown,
		EqualUnknown: "the equal share of rank 2 is 16 samples"}
	older := far
	older.EqualUnknown = ""
	for want, decisions := range map[string][]Decision{
		"the balancer made no decision on measured times":                                                 nil,
		"the equal share of rank 2 is 16 samples":                                                         {far},
		"the decisions of the balancer do not contain it":                                                 {older},
		"the balancer knows it only for 8 % of the steps":                                                 {known},
		"the balancer knows it only for 8 % of the steps; later, the equal share of rank 2 is 16 samples": {known, far},
		"": {{Step: 100, StepSeconds: 1, EqualSeconds: 2, EqualLow: 2, EqualHigh: 2, ShareOfOracle: unknown}},
	} {
		s := &Summary{FirstStep: 1, Steps: 100, Ranks: 2, Gain: Number(unknown)}
		if s.addDecisions(decisions); s.GainUnknown != want || s.Gain == s.Gain != (want == "") {
			t.Errorf("got a gain of %v, %q, want %q", s.Gain, s.GainUnknown, want)
		}
	}
	one := &Summary{FirstStep: 1, Steps: 100, Ranks: 1, Gain: Number(unknown)}
	if one.addDecisions(nil); one.GainUnknown != "" {
		t.Errorf("one rank: got %q, want no reason", one.GainUnknown)
	}
}

// The gain may be known only for decisions on the first shares. This happens in a run that was resumed with the curves
// of an earlier process, for example.
func TestTheGainOfARunCoversAtLeastHalfOfItsSteps(t *testing.T) {
	const first, last = 101, 300
	known := func(step int64, equal float64) Decision {
		return Decision{Step: step, StepSeconds: 1, EqualSeconds: equal, EqualLow: 0.9 * equal, EqualHigh: 1.1 * equal,
			ShareOfOracle: unknown}
	}
	without := func(d Decision) Decision {
		d.EqualSeconds, d.EqualLow, d.EqualHigh = unknown, unknown, unknown
		return d
	}
	old := known(200, 3)
	old.EqualLow, old.EqualHigh = unknown, unknown
	for name, c := range map[string]struct {
		decisions             []Decision
		gain, low, high, part float64
	}{
		"all steps": {[]Decision{known(150, 1), known(300, 2)}, 1.75, 1.575, 1.925, 1},
		"a half":    {[]Decision{without(known(200, 1)), known(300, 2)}, 2, 1.8, 2.2, 0.5},
		"the first steps": {
			[]Decision{known(120, 1.02), without(known(210, 1)), without(known(300, 1))}, unknown, unknown,
			unknown, 0.1},
		"the first steps and no more decisions": {[]Decision{known(120, 1.02)}, unknown, unknown, unknown, 0.1},
		"a decision without interval":           {[]Decision{old, known(300, 2)}, 2, 1.8, 2.2, 0.5},
		"no decision":                           {nil, unknown, unknown, unknown, 0},
	} {
		s := &Summary{FirstStep: first, Steps: last, Gain: Number(unknown), GainLow: Number(unknown),
			GainHigh: Number(unknown), GainPart: Number(unknown)}
		s.addDecisions(c.decisions)
		for i, pair := range [][2]float64{{float64(s.Gain), c.gain}, {float64(s.GainLow), c.low},
			{float64(s.GainHigh), c.high}, {float64(s.GainPart), c.part}} {
			if math.IsNaN(pair[0]) != math.IsNaN(pair[1]) || math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%s: figure %d: got %v, want %v", name, i, pair[0], pair[1])
			}
		}
	}
}
