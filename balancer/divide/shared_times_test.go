package divide

import (
	"runtime"
	"slices"
	"testing"
)

// A curve with few points may reach far beyond the limits of the ranks. The times that the ranks share must end at
// these limits.
func TestSharedTimesEndAtTheLargestLimit(t *testing.T) {
	const ranks, most = 100, 8 << 20
	curve := Curve{{1, 0.001}, {2, 0.003}, {3, 0.002}, {4, 0.004}, {5, 0.0039}, {1 << 24, 0.005}}
	points, limits := NewPoints(curve, true), make([]int, ranks)
	curves := make([]Scaled, ranks)
	for r := range curves {
		curves[r].Points, limits[r] = points, 100+r
		curves[r].Scale(1 + float64(r)/1000)
	}
	b := Batch{Total: 50 * ranks, Limits: limits}
	u, err := b.units(ranks)
	if err != nil {
		t.Fatal(err)
	}
	if _, many := u.classes(curves, 0); !many {
		t.Fatal("the ranks share no times")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := SolveScaled(b, curves)
	runtime.ReadMemStats(&after)
	want, wantErr := SolveScaled(b, Plain(Wholes(curves)))
	if err != nil || wantErr != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v (%v)", got, err, want, wantErr)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("got %d MiB, want at most %d MiB", got>>20, uint64(most)>>20)
	}
}

// The first samples of the first rank take no time. If it gets all of them, the others get too few.
func TestSamplesWithoutTimeAreDividedExactly(t *testing.T) {
	shared := NewPoints(Curve{{1, 2}, {2, 2.1}, {3, 2}, {4, 1}, {5, 4}, {10, 5}}, true)
	curves := append(Plain([]Curve{{{1, 0}, {5, 0}, {6, 1}, {10, 1.5}}}), Scaled{Points: shared},
		Scaled{Points: shared})
	got, err := SolveScaled(Batch{Total: 10}, curves)
	if want := []int{2, 4, 4}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}
