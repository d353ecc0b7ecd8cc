package hybrid_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// cluster is ranks whose true times are known to the test alone.
type cluster struct {
	seconds []func(samples float64) float64
	noise   float64 // standard deviation of the log of a time
	random  *rand.Rand
	exposed float64 // s of communication
	settle  int     // steps between a decision and the change, each settleSeconds longer, as is the first one after it
	extra   float64 // s
}

func newCluster(seed uint64, noise float64, seconds ...func(float64) float64) *cluster {
	return &cluster{seconds: seconds, noise: noise, random: rand.New(rand.NewPCG(seed, 99))}
}

// line is a rank that takes perSample for each sample, plus fixed, in s.
func line(fixed, perSample float64) func(float64) float64 {
	return func(samples float64) float64 { return fixed + perSample*samples }
}

func equalRanks(n int) []func(float64) float64 {
	return slices.Repeat([]func(float64) float64{line(0.01, 0.001)}, n)
}

func (c *cluster) curves(most int) []divide.Curve {
	out := make([]divide.Curve, len(c.seconds))
	for r, f := range c.seconds {
		for n := 1; n <= most; n++ {
			out[r] = append(out[r], divide.Point{Samples: float64(n), Seconds: f(float64(n))})
		}
	}
	return out
}

func (c *cluster) step(shares []int) *balancer.Step {
	s := &balancer.Step{Shares: slices.Clone(shares), Own: make([]float64, len(shares)), Exposed: c.exposed}
	for r, n := range shares {
		if n > 0 {
			s.Own[r] = c.seconds[r](float64(n)) * math.Exp(c.noise*c.random.NormFloat64())
			s.Seconds = max(s.Seconds, s.Own[r])
		}
	}
	s.Seconds += c.exposed
	return s
}

// run plays steps; event, if not nil, may change the world before a step. It returns all decisions, by the step that
// they followed.
func (c *cluster) run(p balancer.Policy, steps int, event func(step int, s *balancer.Step)) map[int]*balancer.Decision {
	shares, coming, wait := p.Start(), []int(nil), 0
	decisions, fresh := map[int]*balancer.Decision{}, false
	for i := range steps {
		s := c.step(shares)
		if s.Settling = coming != nil; s.Settling || fresh {
			s.Seconds += c.extra
		}
		if event != nil {
			event(i, s)
		}
		d, ok := p.Observe(s)
		fresh = false
		if ok {
			decisions[i] = d
			if d.Changed {
				coming, wait = slices.Clone(d.Next), c.settle
			}
		}
		if coming != nil {
			if wait == 0 {
				shares, coming, fresh = coming, nil, true
			}
			wait--
		}
	}
	return decisions
}

func changes(decisions map[int]*balancer.Decision) (n int) {
	for _, d := range decisions {
		if d.Changed {
			n++
		}
	}
	return n
}

func last(decisions map[int]*balancer.Decision) *balancer.Decision {
	at := -1
	for i := range decisions {
		at = max(at, i)
	}
	return decisions[at]
}

func mustNew(t *testing.T, name string, o balancer.Options) balancer.Policy {
	t.Helper()
	if o.Interval == 0 {
		o.Interval = 10
	}
	p, err := policies.New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
