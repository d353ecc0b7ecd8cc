package divide

import (
	"slices"
	"sync"
	"testing"
)

// Policies in several goroutines share the points of ranks without measurements. The race detector must find nothing.
func TestSeveralGoroutinesMayUseTheSamePoints(t *testing.T) {
	points := []*Points{NewPoints(tiles(4, 0.001), true), NewPoints(tiles(8, 0.003), true)}
	b := Batch{Total: 400}
	shares, divisible := make([][]int, 4), make([]float64, 4)
	var all sync.WaitGroup
	for i := range shares {
		all.Go(func() {
			curves := make([]Scaled, 20)
			for r := range curves {
				curves[r].Points = points[r%2]
				curves[r].Scale(1 + float64(r)/20)
			}
			shares[i], _ = SolveScaled(b, curves)
			divisible[i] = Divisible(b.Total, curves, shares[i], b.Capacities(len(curves)))
		})
	}
	all.Wait()
	for i := range shares {
		if !b.Divides(shares[i], nil) || !slices.Equal(shares[i], shares[0]) || divisible[i] != divisible[0] {
			t.Errorf("goroutine %d: got %v and %v s, want %v and %v s", i, shares[i], divisible[i], shares[0],
				divisible[0])
		}
	}
}
