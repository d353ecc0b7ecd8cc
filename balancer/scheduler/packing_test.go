package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random makes a random problem. Some values are equal, some are not positive.
func (p *packing) random(random *rand.Rand, types, groups, most int) {
	var size []int
	for range types {
		size = append(size, random.IntN(9))
	}
	p.reset(size)
	for range groups {
		value := p.add(1+random.IntN(most), 1<<random.IntN(4))
		for t := range value {
			value[t] = siaIncentive - math.Pow(math.Exp(2*random.NormFloat64()), siaPower)
			if random.IntN(3) == 0 {
				value[t] = float64(random.IntN(4)) / 4
			}
		}
	}
}

// check reports an allocation that violates a constraint of the problem, or whose value differs from the one that solve
// returned.
func (p *packing) check(t *testing.T, name string, value float64) {
	t.Helper()
	types := len(p.size)
	used, sum := make([]int, types), 0.0
	for k := range p.jobs {
		jobs := 0
		for u := range types {
			n := p.taken[k*types+u]
			jobs += n
			used[u] += n * p.gpus[k]
			sum += float64(n) * p.value[k*types+u]
			if n < 0 || n > 0 && !(p.value[k*types+u] > 0) {
				t.Fatalf("%s: group %d gets type %d %d times, with the value %v", name, k, u, n, p.value[k*types+u])
			}
		}
		if jobs > p.jobs[k] {
			t.Fatalf("%s: %d jobs of group %d get GPUs, want at most %d", name, jobs, k, p.jobs[k])
		}
	}
	for u, n := range used {
		if n > p.size[u] {
			t.Fatalf("%s: got %d GPUs of type %d, want at most %d", name, n, u, p.size[u])
		}
	}
	if math.Abs(sum-value) > packingRounding {
		t.Fatalf("%s: got a value of %v, but the allocation has %v", name, value, sum)
	}
}

// exhaustive tries all allocations.
func (p *packing) exhaustive() (best float64) {
	types := len(p.size)
	free := append([]int(nil), p.size...)
	var try func(group, jobs int, sum float64)
	try = func(group, jobs int, sum float64) {
		best = max(best, sum)
		if group == len(p.jobs) {
			return
		}
		if jobs == 0 {
			if group++; group < len(p.jobs) {
				try(group, p.jobs[group], sum)
			}
			return
		}
		for t := range types {
			if v, n := p.value[group*types+t], p.gpus[group]; v > 0 && n <= free[t] {
				free[t] -= n
				try(group, jobs-1, sum+v)
				free[t] += n
			}
		}
		try(group, jobs-1, sum)
	}
	try(0, p.jobs[0], 0)
	return best
}

// tabulated is dynamic programming over all numbers of free GPUs.
func (p *packing) tabulated() float64 {
	types, states := len(p.size), 1
	step := make([]int, types)
	for t, n := range p.size {
		step[t] = states
		states *= n + 1
	}
	best := make([]float64, states) // by number of free GPUs: largest value of the jobs so far
	next := make([]float64, states)
	for k, jobs := range p.jobs {
		for range jobs {
			copy(next, best)
			for state := range best {
				for t := range types {
					free := state / step[t] % (p.size[t] + 1)
					if v, n := p.value[k*types+t], p.gpus[k]; v > 0 && n <= free {
						next[state] = max(next[state], v+best[state-n*step[t]])
					}
				}
			}
			best, next = next, best
		}
	}
	return best[states-1]
}

// No allocation of a small problem may have a larger value.
func TestPackingIsOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	var p packing
	searched := 0
	for n := range 3000 {
		p.random(random, 1+random.IntN(3), 1+random.IntN(4), 2)
		value, bound := p.solve(packingNodes)
		p.check(t, "a small problem", value)
		if want := p.exhaustive(); math.Abs(value-want) > 1e-8 || bound != value {
			t.Fatalf("problem %d: got %v with the bound %v, want %v: %+v", n, value, bound, want, p)
		}
		if p.found {
			searched++
		}
		p.found = false
	}
	if searched < 50 {
		t.Errorf("the search improved %d problems, want at least 50", searched)
	}
	// These problems have as many GPUs of each type as the default cluster, and long queues.
	for n := range 60 {
		p.random(random, 3, 1+random.IntN(20), 5)
		p.size[0], p.size[1], p.size[2] = 8, 4, 4
		value, bound := p.solve(packingNodes)
		p.check(t, "a queue", value)
		if want := p.tabulated(); math.Abs(value-want) > 1e-8 || bound != value {
			t.Fatalf("queue %d: got %v with the bound %v, want %v", n, value, bound, want)
		}
	}
}

// If the search stops at its limit of nodes, the optimum must be between the returned value and the bound.
func TestPackingBoundHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	var p packing
	cut, worst := 0, 0.0
	for n := range 1000 {
		p.random(random, 2+random.IntN(2), 4+random.IntN(8), 4)
		value, bound := p.solve(n % 8)
		p.check(t, "a search with a limit", value)
		want := p.tabulated()
		if value > want+1e-8 || bound < want-1e-8 {
			t.Fatalf("problem %d: got %v with the bound %v, but the optimum is %v", n, value, bound, want)
		}
		if value < bound {
			cut++
			worst = max(worst, (want-value)/want)
		}
	}
	t.Logf("%d problems with a gap; the largest real gap is %.2f %%", cut, 100*worst)
	if cut < 100 {
		t.Errorf("got a gap in %d problems, want at least 100", cut)
	}
}

// On larger clusters, the gap between value and bound must be small.
func TestPackingGapIsSmall(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	var p packing
	worst, sum := 0.0, 0.0
	const problems = 40
	for range problems {
		types := 3 + random.IntN(3)
		p.random(random, types, 150, 2)
		for u := range types {
			p.size[u] = 36 + random.IntN(25)
		}
		value, bound := p.solve(5000)
		p.check(t, "a large problem", value)
		gap := (bound - value) / bound
		worst, sum = max(worst, gap), sum+gap
	}
	t.Logf("largest gap %.3f %%, mean %.3f %%", 100*worst, 100*sum/problems)
	if worst > 0.02 {
		t.Errorf("got a gap of %v, want at most 2 %%", worst)
	}
}

func BenchmarkPacking(b *testing.B) {
	random := rand.New(rand.NewPCG(7, 1))
	var p packing
	p.random(random, 3, 150, 2)
	p.size[0], p.size[1], p.size[2] = 36, 36, 36
	for b.Loop() {
		p.solve(packingNodes)
	}
}
