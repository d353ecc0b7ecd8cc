package data

import (
	"math"
	"testing"
)

// The smallest numbers in a configuration are close to the limit a = 0. In this limit, Beta(a, a) is 0 or 1 with equal
// probability.
func TestBetaOfTheSmallestNumbers(t *testing.T) {
	for _, a := range []float64{math.SmallestNonzeroFloat64, 1e-320, 1e-310, 1e-308, 1e-300, 1e-20} {
		d := newDraws(1, 2, 3, 0)
		sum := 0.0
		const draws = 1000
		for range draws {
			x := d.beta(a)
			if !(x >= 0 && x <= 1) {
				t.Fatalf("beta(%g) = %g", a, x)
			}
			sum += x
		}
		// The tolerance is six standard deviations of the mean of 1,000 coin tosses. The numbers of the test are always
		// the same.
		if mean := sum / draws; mean < 0.4 || mean > 0.6 {
			t.Errorf("beta(%g): the mean is %g, want about 0.5", a, mean)
		}
	}
}
