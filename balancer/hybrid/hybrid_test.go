package hybrid_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

func TestHybridLeavesEqualRanksAlone(t *testing.T) {
	// 200 decisions each. The slowest of 8 equal ranks seems 1.4 standard errors slower than it is, so changes happen
	// while little is known: over 20 seeds 3, 5 and 9 on average for 2, 4 and 8 ranks, 14 at most. Of those, 7 at most
	// are in the second half, probes of ranks that never had another share and the way back among them.
	for seed := range uint64(5) {
		for _, ranks := range []int{2, 4, 8} {
			p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64 * ranks}, Ranks: ranks})
			decisions := newCluster(seed, 0.05, equalRanks(ranks)...).run(p, 2000, nil)
			late := 0
			for i, d := range decisions {
				if i >= 1000 && d.Changed {
					late++
				}
			}
			if n := changes(decisions); n > 20 || late > 9 {
				t.Errorf("seed %d, %d ranks: %d changes in 2,000 steps, %d of them in the second 1,000", seed, ranks, n,
					late)
			}
			for r, n := range last(decisions).Next {
				if n < 60 || n > 68 { // each percent that a share is off costs one of the step
					t.Errorf("seed %d, %d ranks: rank %d ends with %d samples, want about 64", seed, ranks, r, n)
				}
			}
		}
	}
}

func TestHybridBearsPeriodicSlowSteps(t *testing.T) {
	// Every seventh step rank 1 takes 3 times as long (it saves, or its machine runs something else): its usual speed
	// counts.
	c := newCluster(4, 0.02, equalRanks(4)...)
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 256}, Ranks: 4})
	decisions := c.run(p, 1000, func(step int, s *balancer.Step) {
		if step%7 == 3 {
			s.Own[1] *= 3
			s.Seconds = max(s.Seconds, s.Own[1])
		}
	})
	if n := changes(decisions); n > 10 {
		t.Errorf("%d changes in 1,000 steps", n)
	}
	for r, n := range last(decisions).Next {
		if n < 60 || n > 68 {
			t.Errorf("rank %d ends with %d samples, want about 64", r, n)
		}
	}
}

func TestHybridReturnsFromTheNextTile(t *testing.T) {
	// Equal shares fill a tile of 32 on both ranks, and every other split begins a second one on one of them. That both
	// take longer elsewhere is no slower host.
	tiled := func(fixed, tile float64) func(float64) float64 {
		return func(samples float64) float64 { return fixed + tile*math.Ceil(samples/32) }
	}
	for _, noise := range []float64{0, 0.05} {
		c := newCluster(1, noise, tiled(0.008, 0.002), tiled(0.001, 0.006))
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2})
		if end := last(c.run(p, 400, nil)).Next; end[0] != 32 {
			t.Errorf("noise %v: ends with %v, want 32 samples each", noise, end)
		}
	}
}

// Far below the measured shares, a curve is an extrapolation: a decision reduces a share to no less than a twelfth of
// the smallest measured one.
func TestHybridGoesDownByTwelfths(t *testing.T) {
	c := newCluster(1, 0.01, line(0, 0.1), line(0, 0.001)) // the best shares are 5 and 507
	decisions := c.run(mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 512}, Ranks: 2}), 40, nil)
	var got []int
	for i := range 40 {
		if d, ok := decisions[i]; ok {
			got = append(got, d.Next[0])
		}
	}
	if len(got) < 2 || got[0] != 256/12 || got[len(got)-1] != 5 {
		t.Errorf("got %v samples for rank 0, want %d, …, 5", got, 256/12)
	}
}

func TestTheFirstWindowsAreShort(t *testing.T) {
	scores := []float64{1, 2}
	curves := newCluster(1, 0, line(0.01, 0.002), line(0.01, 0.001)).curves(64)
	for _, test := range []struct {
		interval int
		scores   []float64
		curves   []divide.Curve
		want     []int // steps of the first windows
	}{{10, nil, nil, []int{1, 2, 4, 8, 10, 10}}, {3, nil, nil, []int{1, 2, 3, 3}}, {2, nil, nil, []int{2, 2, 2}},
		{1, nil, nil, []int{1, 1}}, {10, scores, nil, []int{2, 10, 10}}, {2, scores, nil, []int{2, 2}},
		{10, nil, curves, []int{2, 10}}, {10, nil, []divide.Curve{curves[0], nil}, []int{1, 2, 4}}} {
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2, Interval: test.interval,
			Scores: test.scores, Curves: test.curves})
		c := newCluster(1, 0.01, line(0.01, 0.002), line(0.01, 0.001))
		var got []int
		for range test.want {
			n := 1
			for s := c.step([]int{32, 32}); ; n++ { // shares that never change, so no step is omitted
				if _, due := p.Observe(s); due {
					break
				}
			}
			got = append(got, n)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("interval %d, scores %v, %d curves: got windows of %v steps, want %v", test.interval, test.scores,
				len(test.curves), got, test.want)
		}
	}
}

// With few steps between decisions, the noise of the steps must still be found, or the shares follow it.
func TestHybridBearsNoiseWithShortIntervals(t *testing.T) {
	for _, test := range []struct {
		interval   int
		reach      float64 // of the oracle, in the last quarter
		mostChange float64
	}{{2, 0.94, 70}, {3, 0.93, 75}, {5, 0.98, 40}} {
		const ranks, seeds, steps = 4, 12, 400
		reach, changed := 0.0, 0.0
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 7))
			var times []func(float64) float64
			for range ranks {
				times = append(times, line(0.005*r.Float64(), 0.001*math.Exp(0.5*r.NormFloat64())))
			}
			c := newCluster(seed, 0.2, times...)
			curves := c.curves(64 * ranks)
			best, err := divide.Solve(divide.Batch{Total: 64 * ranks}, curves)
			if err != nil {
				t.Fatal(err)
			}
			then, _ := divide.Slowest(curves, best)
			p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64 * ranks}, Ranks: ranks,
				Interval: test.interval})
			changed += float64(changes(c.run(p, steps, func(step int, s *balancer.Step) {
				if step >= steps*3/4 {
					now, _ := divide.Slowest(curves, s.Shares)
					reach += then / now / (steps / 4 * seeds)
				}
			}))) / seeds
		}
		t.Logf("interval %d: %.4f of the oracle in the last quarter, %.0f changes", test.interval, reach, changed)
		if reach < test.reach || changed > test.mostChange {
			t.Errorf("interval %d: got %.4f of the oracle in the last quarter and %.0f changes, want at least %v and at most %v",
				test.interval, reach, changed, test.reach,
				test.mostChange)
		}
	}
}

// The start of a program makes the first step of some ranks longer. Soon, equal ranks must have nearly equal shares,
// also if most of the ranks were slow: the other ranks then seem to be the ones that changed.
func TestHybridForgetsASlowFirstStep(t *testing.T) {
	for _, slow := range [][]float64{{1, 3, 1.5, 1}, {10, 10, 10, 1}, {50, 50, 1, 1}, {10, 10, 10, 10, 10, 10, 10, 1},
		{3, 3, 3, 3, 3, 3, 1, 1}} {
		const seeds = 10
		early := 0.0 // mean of the largest share, in equal shares, after 20 steps
		for seed := range uint64(seeds) {
			c := newCluster(seed, 0.02, equalRanks(len(slow))...)
			p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64 * len(slow)}, Ranks: len(slow)})
			decisions := c.run(p, 60, func(step int, s *balancer.Step) {
				for r, factor := range slow {
					if step == 0 {
						s.Own[r] *= factor
					}
					s.Seconds = max(s.Seconds, s.Own[r])
				}
				if step == 20 {
					early += float64(slices.Max(s.Shares)) / 64 / seeds
				}
			})
			checkShareOfOracle(t, fmt.Sprintf("first step %v times as long, seed %d, after 60 steps", slow, seed), c,
				last(decisions).Next, 0.97)
		}
		t.Logf("first step %v times as long: the largest share is %.3f times the equal one after 20 steps", slow, early)
		if early > 1.05 {
			t.Errorf("first step %v times as long: the largest share is %.3f times the equal one after 20 steps, want at most 1.05",
				slow, early)
		}
	}
}

func TestHybridFollowsHalfSpeedAndRecovery(t *testing.T) {
	c := newCluster(8, 0.02, equalRanks(4)...)
	usual, half := c.seconds[2], func(samples float64) float64 { return 2 * line(0.01, 0.001)(samples) }
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 256}, Ranks: 4})
	const slow, well, end = 300, 600, 900
	shares := map[int][]int{}
	decisions := c.run(p, end, func(step int, s *balancer.Step) {
		shares[step] = s.Shares
		switch step { // from the next step on
		case slow - 1:
			c.seconds[2] = half
		case well - 1:
			c.seconds[2] = usual
		}
	})
	first := func(from int) *balancer.Decision {
		for i := from; ; i++ {
			if d, ok := decisions[i]; ok {
				return d
			}
		}
	}
	c.seconds[2] = half
	checkShareOfOracle(t, "at the first decision with half speed", c, first(slow).Next, 0.95)
	checkShareOfOracle(t, "when it has been slow for 300 steps", c, shares[well-1], 0.99)
	c.seconds[2] = usual
	checkShareOfOracle(t, "at the first decision after it recovered", c, first(well).Next, 0.95)
	checkShareOfOracle(t, "at the end", c, last(decisions).Next, 0.98)
}

func checkShareOfOracle(t *testing.T, when string, c *cluster, shares []int, want float64) {
	t.Helper()
	curves, total := c.curves(256), 0
	for _, n := range shares {
		total += n
	}
	best, err := divide.Solve(divide.Batch{Total: total}, curves)
	if err != nil {
		t.Fatal(err)
	}
	then, _ := divide.Slowest(curves, best)
	if now, _ := divide.Slowest(curves, shares); then/now < want {
		t.Errorf("%s: shares %v reach %.4f of the oracle %v, want %v", when, shares, then/now, best, want)
	}
}

func TestHybridBelievesTheShapeOfCachedCurves(t *testing.T) {
	// All are flat up to a knee. The heights are not this run's (another clock, another driver), so that rank 2 seems
	// to be ten times as fast.
	knee := func(samples, perSample float64) func(float64) float64 {
		return func(s float64) float64 { return perSample * max(s, samples) }
	}
	c := newCluster(1, 0.01, knee(10, 0.001), knee(48, 0.001), knee(100, 0.0005))
	cached := c.curves(200)
	for i := range cached[2] {
		cached[2][i].Seconds *= 0.1
	}
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 200}, Ranks: 3, Curves: cached})
	if n := p.Start()[2]; n < 150 {
		t.Fatalf("starts with %v, want nearly all on rank 2", p.Start())
	}
	checkShareOfOracle(t, "at the first decision", c, last(c.run(p, 10, nil)).Next, 0.97)
	p = mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 200}, Ranks: 3, Curves: c.curves(200)})
	checkShareOfOracle(t, "with curves of the right height, before any step", c, p.Start(), 1)
}

func TestHybridChangesLessWhereChangesAreDear(t *testing.T) {
	// A rank whose speed wanders by a few percent: following it pays if a change is free.
	play := func(extra float64) (n int) {
		c := newCluster(6, 0.005, equalRanks(2)...)
		c.settle, c.extra = 2, extra
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 512}, Ranks: 2})
		return changes(c.run(p, 3000, func(step int, s *balancer.Step) {
			factor := 1 + 0.03*math.Sin(2*math.Pi*float64(step)/600)
			c.seconds[1] = func(samples float64) float64 { return factor * line(0.01, 0.001)(samples) }
		}))
	}
	free, dear := play(0), play(20*0.26) // 20 steps' time for each of the steps of a change
	if free < 8 || dear > free/2 {
		t.Errorf("%d changes where they are free, %d where they are dear, want many and at most half of them", free,
			dear)
	}
}

func TestHybridForgetsTheClockThatJumped(t *testing.T) {
	// The machine sleeps for an hour in the first step after the first change. Later rank 1 loses half its speed.
	c := newCluster(6, 0.01, line(0.01, 0.001), line(0.01, 0.002))
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 128}, Ranks: 2})
	before, slept := []int(nil), false
	decisions := c.run(p, 1000, func(step int, s *balancer.Step) {
		if before != nil && !slept && !slices.Equal(before, s.Shares) {
			s.Seconds, slept = 3600, true
		}
		before = s.Shares
		if step == 500 {
			c.seconds[1] = line(0.02, 0.004)
		}
	})
	if !slept {
		t.Fatal("no change")
	}
	checkShareOfOracle(t, "500 steps after a rank lost half its speed", c, last(decisions).Next, 0.98)
}

func TestHybridBenchesWorthlessRanks(t *testing.T) {
	worthless := line(1, 0.001) // takes 1 s for the first sample, others 0.1 s for everything
	o := balancer.Options{Batch: divide.Batch{Total: 100, Unit: 4}, Ranks: 3, Bench: true}
	ranks := func() []func(float64) float64 {
		return []func(float64) float64{line(0, 0.002), line(0, 0.002), worthless}
	}
	t.Run("none where it must not", func(t *testing.T) {
		o := o
		o.Bench = false
		if d := last(newCluster(1, 0.01, ranks()...).run(mustNew(t, "hybrid", o), 300, nil)); d.Next[2] != 4 {
			t.Errorf("got %v, want the least for rank 2", d.Next)
		}
	})
	t.Run("to 0, tried again, and back when it is worth it", func(t *testing.T) {
		c := newCluster(1, 0.01, ranks()...)
		tried := false
		decisions := c.run(mustNew(t, "hybrid", o), 6000, func(step int, s *balancer.Step) {
			if step == 150 && s.Shares[2] != 0 {
				t.Errorf("after 150 steps rank 2 still has %d samples", s.Shares[2])
			}
			if step == 1500 {
				c.seconds[2] = line(0, 0.002)
			}
		})
		for i, d := range decisions {
			tried = tried || d.Changed && i < 1500 && strings.Contains(d.Reason, "gets samples again")
		}
		if !tried {
			t.Error("rank 2 is never tried again")
		}
		if d := last(decisions); d.Next[2] < 28 {
			t.Errorf("rank 2 has become as fast as the others and gets %v", d.Next)
		}
	})
	t.Run("never where the others cannot hold the batch", func(t *testing.T) {
		o := o
		o.Limits = []int{48, 48, 48}
		for i, d := range newCluster(1, 0.01, ranks()...).run(mustNew(t, "hybrid", o), 600, nil) {
			if d.Next[2] == 0 {
				t.Fatalf("step %d: got %v", i, d.Next)
			}
		}
	})
	t.Run("next to a rank that can hold nothing", func(t *testing.T) {
		o := o
		o.Limits = []int{100, 0, 100}
		c := newCluster(1, 0.01, ranks()...)
		decisions := c.run(mustNew(t, "hybrid", o), 3000, func(step int, s *balancer.Step) {
			if step == 500 {
				c.seconds[2] = line(0, 0.002)
			}
		})
		if d := last(decisions); d.Next[1] != 0 || d.Next[2] < 40 {
			t.Errorf("got %v, want about half for ranks 0 and 2 each", d.Next)
		}
	})
}

func TestHybridKeepsUnitsAndTheirRest(t *testing.T) {
	o := balancer.Options{Batch: divide.Batch{Total: 107, Unit: 8, Limits: []int{64, 64, 4, 24}}, Ranks: 4}
	c := newCluster(3, 0.01, line(0.01, 0.001), line(0.01, 0.003), line(0.01, 0.001), line(0.01, 0.001))
	d := last(c.run(mustNew(t, "hybrid", o), 500, nil))
	// 13 units and 3 samples, which are rank 3's; rank 2 cannot hold a unit; rank 3 can hold 2 of them.
	if want := []int{64, 24, 0, 19}; !slices.Equal(d.Next, want) {
		t.Errorf("got %v (%s), want %v", d.Next, d.Reason, want)
	}
}

func TestHybridSavesWithoutFlapping(t *testing.T) {
	// Rank 0 is the fastest and draws the most for a sample: 0.3 J against 0.2 and 0.1.
	watts, idle := []float64{300, 100, 25}, []float64{20, 10, 5}
	truth := []func(float64) float64{line(0, 0.001), line(0, 0.002), line(0, 0.004)}
	for seed := range uint64(2) {
		c := newCluster(seed, 0.2, truth...)
		o := balancer.Options{Batch: divide.Batch{Total: 140}, Ranks: 3, Objective: balancer.Energy, Watts: watts,
			IdleWatts: idle, Slowdown: 0.2}
		decisions := c.run(mustNew(t, "hybrid", o), 1500, nil)
		if n := changes(decisions); n > 12 { // 6 on average; without regard to noise 20
			t.Errorf("seed %d: %d changes in 1,500 steps", seed, n)
		}
		curves, shares := c.curves(140), last(decisions).Next
		best, err := divide.Cheapest(o.Batch, curves, watts, idle, o.Slowdown)
		if err != nil {
			t.Fatal(err)
		}
		got, want := divide.Spent(curves, shares, watts, idle), divide.Spent(curves, best, watts, idle)
		if seconds, _ := divide.Slowest(curves, shares); got > 1.05*want || seconds > 0.08*1.2*1.05 {
			t.Errorf("seed %d: %v take %.2f J and %.3f s, the cheapest, %v, %.2f J", seed, shares, got, seconds, best,
				want)
		}
	}
}
