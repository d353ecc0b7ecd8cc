package estimate

import (
	"math"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// The pairs of many shares of a type are in a table and in a map. Their values must be those of the curve, and the
// memory must follow the pairs in use.
func TestPairsOfManySharesTakeLittleMemory(t *testing.T) {
	const shares, most = 3000, 2 << 20 // a table of all pairs would take 72 MB
	c := new(typeCurve)
	cells, cov := make([]cell, 4), make([][]float64, 4)
	for i := range cells {
		samples := 100 * float64(i+1)
		cells[i], cov[i] = cell{samples: samples, log: math.Log(0.01 + 0.001*samples), steps: 10}, make([]float64, 4)
		cov[i][i] = 1e-4
	}
	if c.shape = fitShape(cells, cov, &priorBends, tilePriors(), 200, nil); c.shape == nil {
		t.Fatal("no curve")
	}
	for range 2 { // computed, and known
		for share := 1; share < shares; share += 7 {
			for other := max(share-100, 1); other <= share+100; other += 25 {
				first, second := float64(other), float64(share)
				if other == share {
					continue
				}
				want := ratio{c.shape.ratioVariance(first, second), otherShape(first / second)}
				if got := c.ratio(first, second); got != want {
					t.Fatalf("shares %d and %d: got %v, want %v", other, share, got, want)
				}
			}
		}
	}
	if len(c.other) == 0 || c.shares.n < shares/2 {
		t.Errorf("got %d shares and %d pairs in the map, want many", c.shares.n, len(c.other))
	}
	if got := c.bytes(map[*divide.Points]bool{}); got > most || got < int64(len(c.other))*24 {
		t.Errorf("got %d bytes for %d shares, want at most %d, and those of %d pairs", got, c.shares.n, most,
			len(c.other))
	}
}

// A rank that remembers as many shares as it may must not need new memory for each further share.
func TestAFullRankReusesTheMemoryOfItsShares(t *testing.T) {
	e := &posterior{current: -1}
	share := 0
	more := func() {
		share++
		for i := range e.cells {
			e.cells[i].age++
		}
		e.add(float64(share), float64(share), 1+float64(share))
		e.current = len(e.cells) - 1
		e.forget()
	}
	for range mostShares + 1 {
		more()
	}
	if got := testing.AllocsPerRun(50, more); got > 0 {
		t.Errorf("got %v allocations for each further share, want 0", got)
	}
	if rows := cap(e.cov); rows != mostShares+1 {
		t.Errorf("got room for %d shares, want %d", rows, mostShares+1)
	}
	for i, c := range e.cells {
		if want := share - mostShares + 1 + i; c.samples != float64(want) {
			t.Errorf("share %d: got %v, want %d", i, c.samples, want)
		}
		for j, got := range e.cov[i] {
			want := 0.
			if i == j {
				want = 1 + c.samples
			}
			if got != want || len(e.cov[i]) != mostShares {
				t.Errorf("covariance %d, %d: got %v in a row of %d, want %v", i, j, got, len(e.cov[i]), want)
			}
		}
	}
}

// The curve of a large type has the height of the measured times, also if few of its ranks have samples.
func TestTheCurveOfATypeHasTheHeightOfItsTimes(t *testing.T) {
	const ranks, seconds = largeType + 1, 0.01
	for _, measured := range []int{2, largeType, ranks} {
		m := New(Options{Limits: slices.Repeat([]int{256}, ranks), Active: slices.Repeat([]bool{true}, ranks),
			Interval: 10, Types: slices.Repeat([]string{"one"}, ranks)})
		w := &Window{Shares: make([]int, ranks), Seconds: make([][]float64, ranks)}
		for r := range measured {
			w.Shares[r], w.Seconds[r] = 32, slices.Repeat([]float64{seconds}, 10)
		}
		m.Learn(w)
		m.Fit(w.Shares, true)
		curve := m.types.curves[0]
		if curve == nil {
			t.Fatalf("%d ranks measured: got no curve", measured)
		}
		if got := math.Exp(curve.log(32)); math.Abs(got/seconds-1) > 0.1 {
			t.Errorf("%d ranks measured: got %.4f s for 32 samples, want about %v s", measured, got, seconds)
		}
	}
}
