package estimate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// A rank that was measured only at 40 samples must borrow the shorter time at 128 from a rank of its type, scaled to
// its own level.
func TestARankBorrowsTheShapeOfItsType(t *testing.T) {
	falls := func(n int) float64 {
		if n >= 128 {
			return 0.05
		}
		return 0.1
	}
	for _, types := range [][]string{{"a", "a"}, {"a", "b"}} {
		m := New(Options{Limits: []int{512, 512}, Active: []bool{true, true}, Interval: 10, Types: types})
		slow := func(n int) float64 { return 1.5 * falls(n) }
		play(m.ranks[0], &source{r: rand.New(rand.NewPCG(1, 1)), curve: falls, level: steady, noise: 0.01}, 40, 128, 40,
			128, 40)
		play(m.ranks[1], &source{r: rand.New(rand.NewPCG(2, 1)), curve: slow, level: steady, noise: 0.01}, 40)
		if _, missing := m.Fit([]int{40, 40}, true); missing >= 0 {
			t.Fatalf("rank %d has no curve", missing)
		}
		known := math.Abs(m.Mean()[1].At(128)/slow(128)-1) < 0.1
		if alike := types[0] == types[1]; known != alike {
			t.Errorf("types %v: 128 samples: got %.4f s, the truth is %.4f: want it known only of one type", types,
				m.Mean()[1].At(128), slow(128))
		}
		if got := m.Mean()[1].At(40); math.Abs(got/slow(40)-1) > 0.03 {
			t.Errorf("types %v: 40 samples: got %.4f s, want %.4f as measured", types, got, slow(40))
		}
	}
}

// A borrowed time must have a larger variance than a measured one, because the variances of the lender's level and of
// the type are added.
func TestBorrowedSharesAreLessSure(t *testing.T) {
	m := New(Options{Limits: []int{512, 512, 512}, Active: []bool{true, true, true}, Interval: 10,
		Types: []string{"a", "a", "a"}})
	for r, shares := range [][]int{{40, 60, 80, 100, 120, 140, 160, 180, 200}, {40}, {50, 70}} {
		play(m.ranks[r], &source{r: rand.New(rand.NewPCG(uint64(r), 1)), curve: sloped, level: steady, noise: 0.02},
			shares...)
	}
	m.types.lend(m.ranks)
	cells, cov := m.types.knowledge(m.ranks, 1)
	if len(cells) != 1+mostLent || len(cov) != len(cells) {
		t.Fatalf("got %d shares, want the rank's own and %d borrowed ones", len(cells), mostLent)
	}
	for i, c := range cells {
		if math.Abs(c.log-math.Log(sloped(int(c.samples)))) > 4*math.Sqrt(cov[i][i]) {
			t.Errorf("%v samples: got %.4f s, want %.4f within four standard deviations of %.3f", c.samples,
				stat.Exp(c.log), sloped(int(c.samples)), math.Sqrt(cov[i][i]))
		}
		for j := range cells {
			if cov[i][j] != cov[j][i] {
				t.Errorf("covariance of %d and %d: %v and %v", i, j, cov[i][j], cov[j][i])
			}
		}
		if i > 0 && cov[i][i] < cov[0][0]+shapeError*shapeError {
			t.Errorf(
				"%v samples: got a variance of %v, want at least that of the rank's own share, %v, and that of the type",
				c.samples, cov[i][i], cov[0][0])
		}
	}
}
