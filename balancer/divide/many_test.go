package divide

import (
	"math"
	"math/rand/v2"
	"testing"
)

// With many ranks, a sample of them gives the first bounds of the time. The result must be that of the whole search: no
// rank may take longer than needed.
func TestSolveOfManyRanksIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	const ranks = 8192
	for range 4 {
		curves, total := make([]Curve, ranks), ranks*(20+r.IntN(20))
		for i := range curves {
			per := math.Exp(0.3 * r.NormFloat64())
			if i%5 == 0 { // a period that a regular sample would hit or miss
				per *= 3
			}
			curves[i] = Curve{{Samples: 1, Seconds: per}, {Samples: 64, Seconds: 64 * per * (1 + r.Float64())}}
		}
		shares, err := Solve(Batch{Total: total}, curves)
		if err != nil {
			t.Fatal(err)
		}
		seconds, _ := Slowest(curves, shares)
		sum, most := 0, 0 // samples within the time, and within a slightly shorter one
		for i, c := range Plain(curves) {
			sum += shares[i]
			most += max(c.most(math.Nextafter(seconds, 0), total), 1)
		}
		if sum != total {
			t.Errorf("the shares sum to %d, want %d", sum, total)
		}
		if most >= total {
			t.Errorf("%d samples in %v s: a shorter time holds %d", total, seconds, most)
		}
	}
}
