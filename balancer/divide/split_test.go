package divide_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

func TestSplit(t *testing.T) {
	tests := []struct {
		name  string
		total int
		speed []float64
		limit []int
		want  []int
	}{
		{"one rank takes all", 32, []float64{7}, nil, []int{32}},
		{"equal speeds, equal shares", 256, []float64{5, 5, 5, 5}, nil, []int{64, 64, 64, 64}},
		{"in proportion to speed", 256, []float64{300, 100}, nil, []int{192, 64}},
		{"leftover to the largest remainder", 10, []float64{1, 2, 3}, nil, []int{2, 3, 5}},
		{"ties to the lower ranks", 5, []float64{1, 1, 1}, nil, []int{2, 2, 1}},
		{"no rank below one", 10, []float64{1, 1000, 1000}, nil, []int{1, 5, 4}},
		{"limit reached, the rest in proportion", 100, []float64{8, 1, 1}, []int{20, 100, 100}, []int{20, 40, 40}},
		{"a limit that cascades into another", 100, []float64{8, 4, 1}, []int{40, 40, 100}, []int{40, 40, 20}},
		{"limits filled exactly", 9, []float64{1, 100, 1}, []int{2, 3, 4}, []int{2, 3, 4}},
		{"limit 0 leaves the rank out", 8, []float64{1, 1, 1}, []int{8, 0, 8}, []int{4, 0, 4}},
		{"share at the limit is no violation", 6, []float64{1, 2}, []int{2, 4}, []int{2, 4}},
		{"minimum and limit at once", 10, []float64{1000, 1000, 1}, []int{3, 10, 10}, []int{3, 6, 1}},
		{"speeds far apart", 4, []float64{1e-300, 1e300, 1e300}, nil, []int{1, 2, 1}},
		{"subnormal speeds", 4, []float64{5e-324, 15e-324}, nil, []int{1, 3}},
		{"a limit as large as an int", 3, []float64{2, 1}, []int{math.MaxInt, math.MaxInt}, []int{2, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := divide.Split(test.total, test.speed, test.limit)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Split(%d, %v, %v) = %v, want %v", test.total, test.speed, test.limit, got, test.want)
			}
		})
	}
}

func TestSplitRefuses(t *testing.T) {
	tests := []struct {
		name       string
		total      int
		speed      []float64
		limit      []int
		infeasible bool
		want       string
	}{
		{"limits below the total", 10, []float64{1, 1}, []int{4, 5}, true,
			"split 10 samples among 2 ranks: no feasible split: the ranks' limits sum to 9 samples, want at least 10 (the batch)"},
		{"every rank left out", 10, []float64{1}, []int{0}, true,
			"split 10 samples among 1 ranks: no feasible split: the ranks' limits sum to 0 samples, want at least 10 (the batch)"},
		{"fewer samples than ranks", 1, []float64{1, 1}, nil, true,
			"split 1 samples among 2 ranks: no feasible split: 1 samples, want at least one for each of 2 ranks"},
		{"no ranks", 1, nil, nil, false, "split 1 samples among 0 ranks: no ranks"},
		{"lengths that differ", 1, []float64{1}, []int{1, 1}, false,
			"split 1 samples among 1 ranks: got 2 limits, want 1"},
		{"speed 0", 2, []float64{1, 0}, nil, false,
			"split 2 samples among 2 ranks: speed of rank 1: got 0, want a finite number above 0"},
		{"speed NaN", 2, []float64{math.NaN()}, nil, false,
			"split 2 samples among 1 ranks: speed of rank 0: got NaN, want a finite number above 0"},
		{"speed infinite", 2, []float64{math.Inf(1)}, nil, false,
			"split 2 samples among 1 ranks: speed of rank 0: got +Inf, want a finite number above 0"},
		{"negative limit", 2, []float64{1}, []int{-1}, false,
			"split 2 samples among 1 ranks: limit of rank 0: got -1, want 0 or more"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			shares, err := divide.Split(test.total, test.speed, test.limit)
			if err == nil {
				t.Fatalf("got shares %v, want an error", shares)
			}
			if errors.Is(err, divide.ErrInfeasible) != test.infeasible {
				t.Errorf("errors.Is(%q, ErrInfeasible) = %v", err, !test.infeasible)
			}
			if err.Error() != test.want {
				t.Errorf("got %q, want %q", err, test.want)
			}
		})
	}
}

// problem draws a feasible split. Speeds are small integers half of the time, so that ties and exact shares occur.
func problem(t *rapid.T, maxRanks, maxTotal int) (total int, speed []float64, limit []int) {
	ranks := rapid.IntRange(1, maxRanks).Draw(t, "ranks")
	total = rapid.IntRange(ranks, maxTotal).Draw(t, "total")
	one := rapid.OneOf(
		rapid.Map(rapid.IntRange(1, 6), func(n int) float64 { return float64(n) }),
		rapid.Float64Range(1e-3, 1e3),
	)
	speed = rapid.SliceOfN(one, ranks, ranks).Draw(t, "speed")
	limit = rapid.SliceOfN(rapid.IntRange(0, total), ranks, ranks).Draw(t, "limit")
	// Raise the limits, from rank 0 on, until they hold the total.
	missing := total
	for _, l := range limit {
		missing -= l
	}
	for i := 0; i < ranks && missing > 0; i++ {
		room := min(missing, total-limit[i])
		limit[i] += room
		missing -= room
	}
	return total, speed, limit
}

func TestSplitEqualsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, speed, limit := problem(t, 4, 12)
		got, err := divide.Split(total, speed, limit)
		if err != nil {
			t.Fatal(err)
		}
		if want := oracle(total, speed, limit); !slices.Equal(got, want) {
			t.Fatalf("Split(%d, %v, %v) = %v, the oracle says %v", total, speed, limit, got, want)
		}
	})
}

func TestSplitSumsToTotalWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, speed, limit := problem(t, 64, 10_000)
		shares, err := divide.Split(total, speed, limit)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for i, share := range shares {
			sum += share
			if share < min(1, limit[i]) || share > limit[i] {
				t.Fatalf("rank %d: got share %d, want %d to %d", i, share, min(1, limit[i]), limit[i])
			}
		}
		if sum != total {
			t.Fatalf("shares %v sum to %d, want %d", shares, sum, total)
		}
	})
}

func TestSplitGivesAFasterRankNoFewer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, speed, limit := problem(t, 16, 1000)
		shares, err := divide.Split(total, speed, limit)
		if err != nil {
			t.Fatal(err)
		}
		for i := range shares {
			for j := range shares {
				if speed[i] > speed[j] && limit[i] >= limit[j] && shares[i] < shares[j] {
					t.Fatalf("rank %d is faster than rank %d and holds as many, but got %d, not %d", i, j, shares[i],
						shares[j])
				}
			}
		}
	})
}

func TestSplitDependsOnRatiosOfSpeedsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, speed, limit := problem(t, 16, 1000)
		factor := math.Ldexp(1, rapid.IntRange(-900, 900).Draw(t, "exponent"))
		scaled := make([]float64, len(speed))
		for i, s := range speed {
			scaled[i] = s * factor
		}
		a, errA := divide.Split(total, speed, limit)
		b, errB := divide.Split(total, scaled, limit)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if !slices.Equal(a, b) {
			t.Fatalf("got %v, with speeds times %g got %v", a, factor, b)
		}
	})
}
