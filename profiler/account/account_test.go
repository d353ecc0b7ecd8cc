package account

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func ms(samples int, passes, data, update float64) Rank {
	return Rank{Samples: samples, Passes: passes / 1e3, Data: data / 1e3, Update: update / 1e3}
}

func paused(samples int, passes, pause float64) Rank {
	r := ms(samples, passes, 0, pause)
	r.Pause = r.Update
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestAccountsOfKnownSteps(t *testing.T) {
	const unknown = -1
	for _, c := range []struct {
		name             string
		seconds, exposed float64 // in ms
		steps            [][]Rank
		oracle           float64 // fraction of the oracle; -1: unknown
		want             Account // in ms
	}{
		{"one rank computes", 320, 0, [][]Rank{{ms(8, 300, 0, 10)}}, unknown,
			Account{Step: 320, Useful: 310, Pauses: 10}},
		{"one rank waits for data", 420, 0, [][]Rank{{ms(8, 300, 100, 10)}}, unknown,
			Account{Step: 420, Useful: 310, Data: 100, Pauses: 10}},
		{"equal speeds, unequal shares", 330, 20, [][]Rank{{ms(8, 100, 0, 0), ms(24, 300, 0, 0)}}, unknown,
			Account{Step: 330, Useful: 200, Imbalance: 100, Communication: 20, Pauses: 10}},
		{"the same with curves", 330, 20, [][]Rank{{ms(8, 100, 0, 0), ms(24, 300, 0, 0)}}, 0.75,
			Account{Step: 330, Useful: 220, Imbalance: 80, Communication: 20, Pauses: 10}},
		{"the best shares", 330, 20, [][]Rank{{ms(8, 290, 0, 0), ms(24, 300, 0, 0)}}, 1,
			Account{Step: 330, Useful: 300, Communication: 20, Pauses: 10}},
		{"ranks that are slow in turn", 200, 0, [][]Rank{{ms(8, 200, 0, 0), ms(8, 100, 0, 0)},
			{ms(8, 100, 0, 0), ms(8, 200, 0, 0)}}, 1, Account{Step: 200, Useful: 150, Noise: 50}},
		{"a change of shares is no noise", 200, 0,
			[][]Rank{{ms(16, 200, 0, 0), ms(4, 50, 0, 0)}, {ms(4, 50, 0, 0), ms(16, 200, 0, 0)}}, unknown,
			Account{Step: 200, Useful: 125, Imbalance: 75}},
		{"data that costs nothing", 300, 0, [][]Rank{{ms(8, 100, 100, 0), ms(8, 300, 0, 0)}}, unknown,
			Account{Step: 300, Useful: 150, Imbalance: 60, Data: 90}},
		{"parts longer than the step", 100, 60, [][]Rank{{ms(8, 70, 0, 0), ms(8, 90, 0, 0)}}, 0.5,
			Account{Step: 100, Imbalance: 40, Communication: 60}},
		{"a rank without samples", 120, 0, [][]Rank{{ms(8, 100, 0, 0), ms(0, 900, 0, 0)}}, unknown,
			Account{Step: 120, Useful: 100, Pauses: 20}},
		{"a pause of the slowest rank", 330, 0, [][]Rank{{paused(8, 300, 30), ms(8, 280, 0, 0)}}, 1,
			Account{Step: 330, Useful: 300, Pauses: 30}},
		{"a pause that another rank hides", 300, 0, [][]Rank{{paused(8, 200, 30), ms(8, 300, 0, 0)}}, 1,
			Account{Step: 300, Useful: 300}},
		{"an unknown time of the step", math.NaN(), 20, [][]Rank{{ms(8, 100, 0, 0)}}, unknown,
			Account{Step: 120, Useful: 100, Communication: 20}},
	} {
		w := NewWindow(2)
		for range 2 {
			w.Reset()
			for _, step := range c.steps {
				w.Add(c.seconds/1e3, c.exposed/1e3, step)
			}
		}
		split := Unknown()
		if c.oracle != unknown {
			split.Oracle = c.oracle
		}
		got := w.Account(split, Memory{})
		got = got.Over(1e-3)
		want := c.want.values()
		for i, v := range got.values() {
			if math.Abs(*v-*want[i]) > 1e-6 || math.Abs(got.Step-c.want.Step) > 1e-6 {
				t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
				break
			}
		}
	}
}

// For any measurements, each part must be at least 0, and the parts must sum to the step. The imbalance must agree with
// the fraction of the oracle.
func TestPartsSumToTheMeasuredStep(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ranks := 1 + r.IntN(6)
		w := NewWindow(ranks)
		measured := 0.0
		steps := 1 + r.IntN(20)
		for range steps {
			step := make([]Rank, ranks)
			for i := range step {
				step[i] = ms(r.IntN(20), 300*r.Float64(), 50*r.Float64(), 20*r.Float64())
			}
			step[0].Samples++
			seconds := 0.5 * r.Float64()
			w.Add(seconds, 0.1*r.Float64(), step)
			measured += seconds
		}
		split := Split{Oracle: r.Float64(), Granularity: 0.1 * r.Float64()}
		if r.IntN(3) == 0 {
			split = Unknown()
		}
		a := w.Account(split, Memory{0.02 * r.Float64(), 0.05 * r.Float64()})
		sum := 0.0
		for _, p := range a.Parts() {
			if p.Seconds < 0 {
				t.Fatalf("a negative part: %+v", a)
			}
			sum += p.Seconds
		}
		if !near(sum, a.Step) || !near(a.Step, measured/float64(steps)) {
			t.Fatalf("the parts of %+v sum to %v s, want the measured %v s", a, sum, measured/float64(steps))
		}
		busy, exposed := w.Steady()
		if most := (1 - split.Oracle) * (busy + exposed); a.Imbalance > most+1e-9 {
			t.Fatalf("imbalance: got %v s, want at most %v s with a fraction of the oracle of %v", a.Imbalance, most,
				split.Oracle)
		}
	}
}

func TestMeansOfAccountsSumToTheMeanStep(t *testing.T) {
	var sum Account
	a, b := Account{Step: 3, Useful: 2, Noise: 1}, Account{Step: 6, Useful: 1, Data: 5}
	sum.Add(&a, 10)
	sum.Add(&b, 20)
	if got := sum.Over(30); !near(got.Step, 5) || !near(got.Useful+got.Noise+got.Data, 5) || !near(got.Data, 10.0/3) {
		t.Errorf("got %+v", got)
	}
}

func TestTheNoisyRankIsNamed(t *testing.T) {
	w := NewWindow(3)
	r := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		noisy := 100.0
		if r.IntN(5) == 0 {
			noisy = 200
		}
		w.Add(0.2, 0, []Rank{ms(8, 100+r.Float64(), 0, 0), ms(8, 100+r.Float64(), 0, 0), ms(8, noisy, 0, 0)})
	}
	if got := w.Blame(); got != 2 {
		t.Errorf("got rank %d, want 2", got)
	}
	w.Reset()
	for i := range 50 {
		w.Add(0.2, 0, []Rank{ms(8, 100+100*float64(i%2), 0, 0), ms(8, 200-100*float64(i%2), 0, 0), ms(8, 100, 0, 0)})
	}
	if got := w.Blame(); got != -1 {
		t.Errorf("two ranks in turn: got rank %d, want none", got)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	w, step := NewWindow(2), []Rank{ms(8, 100, 0, 0), ms(8, 110, 0, 0)}
	if n := testing.AllocsPerRun(100, func() { w.Add(0.2, 0, step) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func TestTheSumAsText(t *testing.T) {
	a := Account{Step: 0.1, Useful: 0.09, Communication: 0.008, Noise: 0.002}
	if got := a.String(); got != "100.0 ms = 90.0 useful + 8.0 communication + 2.0 noise" {
		t.Errorf("got %q", got)
	}
	a.Granularity = 0.001
	if got := a.Text(
		1); got != "100.0 ms = 90.0 useful + 8.0 communication + 2.0 noise (mostly of rank 1) + 1.0 granularity" {
		t.Errorf("got %q", got)
	}
	a.Noise = 0.0009
	if got := a.Text(1); got != "100.0 ms = 90.0 useful + 8.0 communication + 0.9 noise + 1.0 granularity" {
		t.Errorf("got %q", got)
	}
	for _, p := range a.Parts() {
		if p.Name == "" || p.Kind == "" || strings.HasSuffix(p.Kind, ".") {
			t.Errorf("got the part %+v", p)
		}
	}
}
