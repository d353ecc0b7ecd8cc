package hybrid_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// unequal makes a policy for ranks of unequal speed that has known them for some decisions, and steps with the shares
// that it then has.
func unequal(b *testing.B, policy string, ranks, interval int, types []string) (balancer.Policy, []*balancer.Step) {
	random := rand.New(rand.NewPCG(1, 1))
	c := newCluster(1, 0.02)
	for range ranks {
		c.seconds = append(c.seconds, line(0.005+0.01*random.Float64(), 0.003*math.Exp(0.5*random.NormFloat64())))
	}
	p, err := policies.New(policy, balancer.Options{Batch: divide.Batch{Total: 64 * ranks}, Ranks: ranks,
		Interval: interval, Types: types})
	if err != nil {
		b.Fatal(err)
	}
	shares := p.Start()
	for decisions := 0; decisions < 10; {
		if d, ok := p.Observe(c.step(shares)); ok {
			shares = append([]int(nil), d.Next...)
			decisions++
		}
	}
	steps := make([]*balancer.Step, 64)
	for i := range steps {
		steps[i] = c.step(shares)
	}
	return p, steps
}

// BenchmarkStep is what each step costs that no decision follows.
func BenchmarkStep(b *testing.B) {
	for _, policy := range policies.Names() {
		for _, ranks := range []int{4, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d", policy, ranks), func(b *testing.B) {
				const interval = 100
				p, steps := unequal(b, policy, ranks, interval, nil)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					if (i+2)%interval == 0 { // a decision would be due, now or in the next step
						b.StopTimer()
						p.Observe(steps[0])
						for range 3 * interval {
							if _, ok := p.Observe(steps[0]); ok {
								break
							}
						}
						b.StartTimer()
					}
					p.Observe(steps[i%len(steps)])
				}
			})
		}
	}
}

// BenchmarkDecision is one step with a decision, from a window of this step alone.
func BenchmarkDecision(b *testing.B) {
	for _, policy := range policies.Names() {
		for _, ranks := range []int{4, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d", policy, ranks), func(b *testing.B) {
				decide(b, policy, ranks, nil)
			})
		}
	}
	types := make([]string, 1000)
	for r := range types {
		types[r] = fmt.Sprint("type ", r%4)
	}
	b.Run("hybrid/1000 of 4 types", func(b *testing.B) { decide(b, "hybrid", len(types), types) })
}

func decide(b *testing.B, policy string, ranks int, types []string) {
	p, steps := unequal(b, policy, ranks, 1, types)
	p.Observe(steps[0])
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, ok := p.Observe(steps[i%len(steps)]); !ok {
			b.Fatal("no decision")
		}
	}
}
