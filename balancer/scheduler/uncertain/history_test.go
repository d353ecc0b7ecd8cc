package uncertain

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Some values are not known yet, but have lower limits. With these limits, the mean and the deviation must be those of
// all values. The mean of the known values alone must be too small; otherwise the test proves nothing.
func TestCensoredValues(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	var known running
	var least []float64
	const mean, deviation, limit = 3.0, 0.8, 3.2
	var sum, squares, n float64
	for range 4000 {
		x := mean + deviation*random.NormFloat64()
		if x > limit {
			least = append(least, limit)
			continue
		}
		n, sum, squares = n+1, sum+x, squares+x*x
	}
	known.weight, known.mean = n, sum/n // here, old values keep their weight
	known.squares = squares - n*known.mean*known.mean
	got, variance := known.with(least)
	if math.Abs(got-mean) > 0.05 || math.Abs(math.Sqrt(variance)-deviation) > 0.05 {
		t.Errorf("got mean %v and deviation %v, want %v and %v", got, math.Sqrt(variance), mean, deviation)
	}
	if known.mean > mean-0.2 {
		t.Errorf("got mean %v of the known values, want a smaller one than %v", known.mean, mean-0.2)
	}
	// Limits far below the known values contain no information.
	if got, _ := known.with([]float64{-1e9, -50}); math.Abs(got-known.mean) > 1e-9 {
		t.Errorf("limits without information: got mean %v, want %v", got, known.mean)
	}
	// A limit far above the known values is close to the value itself.
	var few running
	for range 5 {
		few.add(1)
	}
	got, variance = few.with([]float64{100})
	if math.IsNaN(got) || math.IsInf(got, 0) || !(variance > 0) || got < 10 {
		t.Errorf("an extreme limit: got mean %v and variance %v", got, variance)
	}
}

func TestHazard(t *testing.T) {
	// scipy.stats.norm computed the wanted values: pdf(a) / sf(a).
	for a, want := range map[float64]float64{-3: 0.0044378, 0: 0.7978846, 2: 2.3732155, 29.999: 30.03227,
		31: 31.03219} {
		if got := hazard(a); math.Abs(got-want) > 1e-3*want {
			t.Errorf("hazard(%v): got %v, want %v", a, got, want)
		}
	}
}
