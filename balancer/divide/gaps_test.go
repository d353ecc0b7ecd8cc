package divide

import (
	"runtime"
	"testing"
)

// Half of the ranks are fast only with whole tiles, and rank 1 alone decides the time of the step. Thousands of ranks
// therefore give back tiles. The solver must not store the possible sums for each of them.
func TestManyRanksWithGapsTakeLittleMemory(t *testing.T) {
	const ranks, total, most = 4000, 60_001, 8 << 20
	var even, odd Curve
	for b := 1.; b <= 64; b++ {
		slow := 0.2 // above all times of tiles
		if int(b)%16 == 0 {
			slow = 0
		}
		even = append(even, Point{b, 0.01 + 0.001*b + slow})
		odd = append(odd, Point{b, 0.01 + 1e-6*b})
	}
	shared := []*Points{NewPoints(even, true), NewPoints(odd, true)}
	curves, limits := make([]Scaled, ranks), make([]int, ranks)
	for r := range curves {
		limits[r] = 64 - 62*(r%2) // ranks of the second type have 1 or 2 samples
		curves[r] = Scaled{Points: shared[r%2], Factors: [3]float64{1 + float64(r)*1e-6}}
	}
	limits[1], curves[1] = 1, Scaled{Points: NewPoints(Curve{{1, 0.1}, {2, 0.2}}, true)}
	b := Batch{Total: total, Limits: limits}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	shares, err := SolveScaled(b, curves)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Divides(shares, nil) {
		t.Errorf("%v do not divide %d samples", shares, total)
	}
	for r := 0; r < ranks; r += 2 {
		if shares[r]%16 != 0 {
			t.Fatalf("rank %d: got %d samples, want whole tiles", r, shares[r])
		}
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("got %d MiB, want at most %d MiB", got>>20, uint64(most)>>20)
	}
}
