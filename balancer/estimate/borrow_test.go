package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Ranks of a large type borrow a curve at their own levels. Ranks of the type whose measured shares have other ratios
// have own curves.
func TestRanksOfALargeTypeBorrowCurves(t *testing.T) {
	const ranks, odd = 2 * manyRanks, 8 // the last ranks are odd: their time hardly depends on the share
	random := rand.New(rand.NewPCG(5, 7))
	truth := make([]divide.Curve, ranks)
	for r := range truth {
		level := math.Exp(0.2 * random.NormFloat64())
		for _, b := range []float64{1, 256} {
			seconds := level * (0.01 + 0.001*b)
			if r >= ranks-odd {
				seconds = level * (0.04 + 0.0001*b)
			}
			truth[r] = append(truth[r], divide.Point{Samples: b, Seconds: seconds})
		}
	}
	m := New(Options{Limits: slices.Repeat([]int{256}, ranks), Active: slices.Repeat([]bool{true}, ranks), Interval: 10,
		Types: slices.Repeat([]string{"one"}, ranks)})
	shares := make([]int, ranks)
	for window := range 12 {
		seconds := make([][]float64, ranks)
		for r := range shares {
			shares[r] = []int{32, 64, 16, 48}[window%4]
			for range 10 {
				noise := math.Exp(0.01 * random.NormFloat64())
				seconds[r] = append(seconds[r], truth[r].At(float64(shares[r]))*noise)
			}
		}
		m.Learn(&Window{Shares: shares, Seconds: seconds})
		if _, missing := m.Fit(shares, true); missing >= 0 {
			t.Fatalf("rank %d has no curve", missing)
		}
	}
	borrowed, shapes := 0, map[*shape]bool{}
	for r, e := range m.ranks {
		borrows := e.borrowed != nil
		if shapes[e.shape] = true; borrows {
			borrowed++
			if r >= ranks-odd {
				t.Errorf("rank %d borrows a curve that its measured shares contradict", r)
			}
		}
		for _, b := range []float64{16, 32, 64, 100} {
			got, want := m.Mean()[r].At(b), truth[r].At(b)
			if math.Abs(got/want-1) > 0.08 {
				t.Errorf("rank %d (borrows: %v): got %.4f s for %v samples, want %.4f", r, borrows, got, b, want)
			}
		}
		if sigma := m.Sigma(r, 48) / truth[r].At(48); !(sigma > 0.0005 && sigma < 0.05) {
			t.Errorf("rank %d (borrows: %v): got a standard error of %.4f, want about 0.01", r, borrows, sigma)
		}
	}
	if want := ranks - odd - lenders - 1; borrowed < want-want/10 {
		t.Errorf("%d ranks borrow a curve, want nearly %d", borrowed, want)
	}
	if len(shapes) > ranks/4 {
		t.Errorf("%d ranks have %d curves, want few", ranks, len(shapes))
	}
}

// In a blind start, a rank that borrows the curve of its type may drop its first step, which also contains the start of
// the program. The rank then has no level until its next share is measured.
func TestABorrowerDropsItsFirstStep(t *testing.T) {
	const ranks = 2 * manyRanks
	m := New(Options{Limits: slices.Repeat([]int{256}, ranks), Active: slices.Repeat([]bool{true}, ranks), Interval: 10,
		Types: slices.Repeat([]string{"one"}, ranks)})
	for window, share := range []int{32, 48, 64} {
		shares, seconds := slices.Repeat([]int{share}, ranks), make([][]float64, ranks)
		for r := range seconds {
			seconds[r] = []float64{0.01 + 0.001*float64(share)}
			if window == 0 && r == 0 {
				seconds[r][0] *= 3
			}
		}
		m.Learn(&Window{Shares: shares, Seconds: seconds, Opening: window < 2, Blind: true})
		if _, missing := m.Fit(shares, true); missing >= 0 {
			t.Fatalf("window %d: rank %d has no curve", window, missing)
		}
		if e := m.ranks[0]; window == 0 && e.borrowed == nil || window > 0 && e.cell(32) >= 0 {
			t.Fatalf("window %d: borrowed %v, shares %v; want a borrower that drops its first step", window,
				e.borrowed != nil, e.cells)
		}
	}
	if got, want := m.Mean()[0].At(64), 0.074; math.Abs(got/want-1) > 0.1 {
		t.Errorf("got %.4f s for 64 samples, want %.4f", got, want)
	}
}
