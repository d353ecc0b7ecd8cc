package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
)

// problem makes a random problem with 2 or 3 types.
func problem(random *rand.Rand) *fairness {
	types, jobs := 2+random.IntN(2), 1+random.IntN(30)
	f := &fairness{}
	for range types {
		f.size = append(f.size, float64(1+random.IntN(8)))
	}
	for range jobs {
		rate := make([]float64, types)
		for t := range rate {
			rate[t] = math.Exp(random.NormFloat64())
			if random.IntN(6) == 0 {
				rate[t] = 0
			}
		}
		rate[random.IntN(types)] = 1
		f.rate = append(f.rate, rate)
		f.gpus = append(f.gpus, float64(int(1)<<random.IntN(3)))
	}
	return f
}

// cost returns the least cost of a level at given prices. The sum of price times size over all types must be 1. If the
// cost is above 1, the level is unreachable (weak duality).
func cost(f *fairness, price []float64, level float64) (sum float64) {
	for j, rate := range f.rate {
		best, top := math.Inf(1), 0.0
		for _, v := range rate {
			top = max(top, v)
		}
		goal := min(level, top)
		for a, v := range rate {
			for b, w := range rate {
				if v < goal || v == 0 || w >= goal && a != b {
					continue
				}
				if a == b {
					best = min(best, price[a]/f.size[a]*goal/v)
				} else if w > 0 {
					part := (goal - w) / (v - w)
					best = min(best, price[a]/f.size[a]*part+price[b]/f.size[b]*(1-part))
				}
			}
		}
		sum += best * f.gpus[j]
	}
	return sum
}

// dearest returns the greatest cost over all prices. The cost is a concave function of one or two free prices.
func dearest(f *fairness, level float64) float64 {
	search := func(value func(float64) float64, high float64) (best float64) {
		low := 0.0
		for range 60 {
			a, b := low+(high-low)/3, high-(high-low)/3
			va, vb := value(a), value(b)
			best = max(best, va, vb)
			if va < vb {
				low = a
			} else {
				high = b
			}
		}
		return best
	}
	return search(func(p float64) float64 {
		if len(f.size) == 2 {
			return cost(f, []float64{p, 1 - p}, level)
		}
		return search(func(q float64) float64 { return cost(f, []float64{p, q, 1 - p - q}, level) }, 1-p)
	}, 1)
}

func TestFairnessIsOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 1000 {
		f := problem(random)
		x, level := f.solve()
		types := len(f.size)
		load, top := make([]float64, types), 0.0
		for j, rate := range f.rate {
			time, got, own := 0.0, 0.0, 0.0
			for u, v := range rate {
				share := x[j*types+u]
				if share < 0 {
					t.Fatalf("problem %d: job %d: got %v on type %d, want at least 0", n, j, share, u)
				}
				time, got, own = time+share, got+share*v, max(own, v)
				load[u] += share * f.gpus[j]
			}
			top = max(top, own)
			if time > 1+1e-9 || got < min(level, own)*(1-1e-9) {
				t.Fatalf("problem %d: job %d: got time %v and level %v, want time up to 1 and level %v", n, j, time,
					got, min(level, own))
			}
		}
		for u, v := range load {
			if v > f.size[u]*(1+1e-9) {
				t.Fatalf("problem %d: got %v GPUs of type %d, want up to %v", n, v, u, f.size[u])
			}
		}
		if level < top*(1-1e-9) && dearest(f, level*(1+1e-4)) <= 1 {
			t.Fatalf("problem %d: got level %v, but no prices show that a level 1e-4 higher is out of reach", n, level)
		}
	}
}

func BenchmarkFairness(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	f := &fairness{size: []float64{36, 36, 36}}
	for range 200 {
		f.rate = append(f.rate, []float64{random.Float64() * 4, random.Float64() * 2, random.Float64()})
		f.gpus = append(f.gpus, 1)
	}
	for b.Loop() {
		f.solve()
	}
}
