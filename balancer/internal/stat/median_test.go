package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMedianIsTheMiddleOfTheSortedValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		values := make([]float64, 1+r.IntN(500))
		kinds := 1 + r.IntN(1000) // few different values: many are equal
		for i := range values {
			values[i] = float64(r.IntN(kinds))
			if kinds > 800 && i%7 == 0 {
				values[i] = math.NaN()
			}
		}
		given, sorted, n := slices.Clone(values), slices.Clone(values), len(values)
		slices.Sort(sorted)
		want, got := (sorted[(n-1)/2]+sorted[n/2])/2, Median(values)
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%d values of %d kinds: got %v, want %v", n, kinds, got, want)
		}
		if !slices.EqualFunc(values, given, func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Fatalf("the values changed")
		}
	}
}
