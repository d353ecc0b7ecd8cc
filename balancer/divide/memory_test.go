package divide

import (
	"runtime"
	"testing"
)

// Without limits, a rank could get the whole batch. The solver must not build lists of that length for each rank.
func TestJaggedRanksWithoutLimitsTakeLittleMemory(t *testing.T) {
	const ranks, total, most = 1000, 1_000_000, 32 << 20
	for name, constant := range map[string]float64{"times in proportion": 0, "mostly constant times": 1000} {
		curves := make([]Curve, ranks)
		for r := range curves {
			per := 0.001 * (1 + float64(r%7)/10)
			for b := 16.; b <= 2048; b += 16 {
				seconds := per * (constant + b)
				if int(b)%64 == 0 { // a tile
					seconds -= per * 24
				}
				curves[r] = append(curves[r], Point{b - 15, seconds - per}, Point{b, seconds})
			}
			curves[r] = append(curves[r], Point{4096, per * (constant + 4096)})
		}
		if curves[0].turnsOnce() {
			t.Fatal("the curves are not jagged")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		shares, err := Solve(Batch{Total: total}, curves)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if !(Batch{Total: total}).Divides(shares, nil) {
			t.Errorf("%s: %v do not divide %d samples", name, shares, total)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: got %d MiB, want at most %d MiB", name, got>>20, uint64(most)>>20)
		}
	}
}
