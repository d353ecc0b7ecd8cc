package divide

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// exhaustive returns the shortest time of the slowest rank over all divisions, or +Inf if there are none.
func exhaustive(b Batch, curves []Curve) float64 {
	best := math.Inf(1)
	shares := make([]int, len(curves))
	size := max(b.Unit, 1)
	var try func(rank, rest int)
	try = func(rank, rest int) {
		if rank == len(curves) {
			if rest == 0 {
				t, _ := Slowest(curves, shares)
				best = min(best, t)
			}
			return
		}
		limit := b.Total
		if b.Limits != nil {
			limit = b.Limits[rank]
		}
		if limit < size {
			shares[rank] = 0
			try(rank+1, rest)
			return
		}
		least := size
		if b.Least != nil {
			least = min(max(b.Least[rank]/size, 1)*size, limit/size*size)
		}
		for n := least; n <= min(limit, rest); n++ {
			if n%size != 0 && n != rest { // only the last share may be another number than a multiple
				continue
			}
			if n%size != 0 && n < size {
				continue
			}
			shares[rank] = n
			try(rank+1, rest-n)
		}
	}
	try(0, b.Total)
	return best
}

func randomCurve(r *rand.Rand, total int, falls bool) Curve {
	var c Curve
	at, t := 0.0, r.Float64()
	for range 1 + r.IntN(5) {
		at += 0.5 + r.Float64()*float64(total)/3
		switch r.IntN(4) {
		case 0: // flat
		case 1:
			t += 3 * r.Float64() // a step
		default:
			t += r.Float64()
		}
		if falls && r.IntN(3) == 0 {
			t *= 0.7
		}
		c = append(c, Point{at, t})
	}
	return c
}

func TestSolveIsAsGoodAsTryingEverything(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := Batch{Total: 1 + r.IntN(16), Unit: r.IntN(4)}
		ranks := 1 + r.IntN(4)
		b.Limits = randomLimits(r, ranks, 0, b.Total)
		falls := r.IntN(3) == 0
		curves := make([]Curve, ranks)
		for i := range curves {
			curves[i] = randomCurve(r, b.Total, falls)
		}
		name := fmt.Sprintf("seed %d: %+v of %v", seed, b, curves)
		checkSolve(t, name, b, curves)
	}
}

// checkSolve compares Solve with an exhaustive search. It returns nil if no shares are feasible.
func checkSolve(t *testing.T, name string, b Batch, curves []Curve) []int {
	t.Helper()
	shares, err := Solve(b, curves)
	if err != nil {
		if !errors.Is(err, ErrInfeasible) {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.units(len(curves)); err == nil {
			t.Fatalf("%s: infeasible, but the batch has units", name)
		}
		return nil
	}
	checkShares(t, name, b, shares)
	got, _ := Slowest(curves, shares)
	if want := exhaustive(b, curves); got > want {
		t.Fatalf("%s: shares %v take %v, the best take %v", name, shares, got, want)
	}
	return shares
}

// randomLimits returns limits of at least least samples for each rank; nil in half of the cases.
func randomLimits(r *rand.Rand, ranks, least, total int) []int {
	if r.IntN(2) > 0 {
		return nil
	}
	limits := make([]int, ranks)
	for i := range limits {
		limits[i] = least + r.IntN(total+3)
	}
	return limits
}

// Ranks that are slower with few samples must get enough samples, and every rank at least its minimum.
func TestSolveFindsValleys(t *testing.T) {
	fell := 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := Batch{Total: 4 + r.IntN(14), Unit: r.IntN(4)}
		ranks := 1 + r.IntN(4)
		b.Limits = randomLimits(r, ranks, 1, b.Total)
		if r.IntN(2) == 0 {
			b.Least = make([]int, ranks)
			for i := range b.Least {
				b.Least[i] = r.IntN(b.Total/ranks + 1)
			}
		}
		curves := make([]Curve, ranks)
		for i := range curves {
			if curves[i] = randomCurve(r, b.Total, false); r.IntN(3) > 0 {
				curves[i] = fallen(r, curves[i])
			}
		}
		name := fmt.Sprintf("seed %d: %+v of %v", seed, b, curves)
		if shares := checkSolve(t, name, b, curves); shares != nil {
			if seconds, slowest := Slowest(curves, shares); curves[slowest].At(1) > seconds {
				fell++
			}
		}
	}
	if fell < 200 {
		t.Errorf("in %d cases the slowest rank has enough samples to be faster than with one, want hundreds", fell)
	}
}

// fallen returns a rising curve with a falling part before it.
func fallen(r *rand.Rand, c Curve) Curve {
	c = slices.Clone(c)
	for i := range c {
		c[i].Samples += 3
	}
	return append(Curve{{0.5, c[0].Seconds + 2*r.Float64()}, {1 + 2*r.Float64(), c[0].Seconds + r.Float64()*0.2}},
		c...).smoothed()
}

func checkShares(t *testing.T, name string, b Batch, shares []int) {
	t.Helper()
	sum := 0
	for r, n := range shares {
		sum += n
		if b.Limits != nil && n > b.Limits[r] {
			t.Fatalf("%s: shares %v, rank %d is over its limit", name, shares, r)
		}
		if b.Unit > 1 && n%b.Unit != 0 && sum != b.Total {
			t.Fatalf("%s: shares %v, rank %d cuts a unit", name, shares, r)
		}
		if n == 0 && (b.Limits == nil || b.Limits[r] >= max(b.Unit, 1)+b.Total%max(b.Unit, 1)) {
			t.Fatalf("%s: shares %v, rank %d has none", name, shares, r)
		}
	}
	if sum != b.Total {
		t.Fatalf("%s: shares %v sum to %d", name, shares, sum)
	}
}

func TestSolveLeavesTheOthersShort(t *testing.T) {
	// Rank 0 takes a second for its single sample. The other ranks must still divide the rest so that they finish as
	// early as possible.
	slow, fast := Curve{{1, 1}, {2, 2}}, Curve{{1, 0.01}, {100, 1}}
	shares, err := Solve(Batch{Total: 41}, []Curve{slow, fast, fast})
	if err != nil || !slices.Equal(shares, []int{1, 20, 20}) {
		t.Errorf("got %v, %v, want [1 20 20]", shares, err)
	}
}

func TestSolveSaysWhoCanHoldWhat(t *testing.T) {
	line := Curve{{1, 1}, {2, 2}}
	_, err := Solve(Batch{Total: 256, Limits: []int{96, 64, 0}}, []Curve{line, line, line})
	if !errors.Is(err, ErrInfeasible) ||
		!strings.Contains(err.Error(), "96 of 256 samples do not fit: the ranks can hold 96, 64, 0") {
		t.Errorf("got %v", err)
	}
	_, err = Solve(Batch{Total: 256}, []Curve{line, {{2, 1}, {1, 1}}})
	if err == nil || !strings.Contains(err.Error(), "rank 1: point 1") {
		t.Errorf("got %v, want the rank and the point", err)
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, ranks := range []int{8, 64, 1000} {
		r := rand.New(rand.NewPCG(1, 2))
		total := 32 * ranks
		curves := make([]Curve, ranks)
		for i := range curves {
			speed := 0.2 + r.Float64()
			for n := 1; n <= 16; n++ {
				curves[i] = append(curves[i], Point{float64(8 * n), 0.01 + speed*float64(n)})
			}
		}
		for name, curves := range map[string][]Curve{"": curves, "/zigzag": zigzags(r, ranks, 128)} {
			b.Run(fmt.Sprint(ranks)+name, func(b *testing.B) {
				for b.Loop() {
					if _, err := Solve(Batch{Total: total, Limits: slices.Repeat([]int{128}, ranks)},
						curves); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestSolveWhereTimeIsNoMatter(t *testing.T) {
	huge := Curve{{1, math.MaxFloat64 / 2}, {2, math.MaxFloat64}}
	short := Curve{{1, 1e-323}, {2, 5e-324}, {3, 1e-323}, {4, 5e-324}}
	long := Curve{{1, 2}, {2, 1}, {3, 2}, {3.5, 1}, {3.75, math.MaxFloat64}}
	tests := []struct {
		name   string
		curves []Curve
		want   []int
	}{
		{"no rank takes any time", []Curve{{{1, 0}}, {{1, 0}}}, []int{2, 2}},
		{"none but the last samples of one", []Curve{{{1, 0}, {2, 0}, {3, 1}}, {{1, 0}, {2, 1}}}, []int{2, 2}},
		{"beyond the last point floats end", []Curve{huge, huge}, []int{2, 2}},
		{"the points of a flat curve are nearer than floats can divide by",
			[]Curve{{{5e-324, 1}, {1e-323, 1}}, {{1, 1}, {2, 2}}}, []int{3, 1}},
		{"the shortest time is the smallest float", []Curve{short, short}, []int{2, 2}},
		{"the longest times of curves that fall again are the largest floats", []Curve{long, long}, []int{2, 2}},
	}
	for _, test := range tests {
		shares, err := Solve(Batch{Total: 4}, test.curves)
		got, _ := Slowest(test.curves, shares)
		best, _ := Slowest(test.curves, test.want)
		if err != nil || shares[0]+shares[1] != 4 || !(got <= best) {
			t.Errorf("%s: got %v, %v, want as good as %v", test.name, shares, err, test.want)
		}
	}
}

// tileByTile returns the shortest time of the slowest rank, by simple dynamic programming over the ranks. It is the
// oracle for batches that are too large for an exhaustive search.
func tileByTile(total int, limits []int, curves []Curve) float64 {
	best := make([]float64, total+1) // slowest time of the ranks so far, by the samples that they have together
	for i := range best[1:] {
		best[i+1] = math.Inf(1)
	}
	for r, c := range curves {
		next := slices.Repeat([]float64{math.Inf(1)}, total+1)
		for sum := range next {
			for n := 1; n <= min(limits[r], sum); n++ {
				next[sum] = min(next[sum], max(best[sum-n], c.At(float64(n))))
			}
		}
		best = next
	}
	return best[total]
}

// zigzags returns the curves of ranks that are fast with shares that fill tiles. Each rank has its own size of tiles.
func zigzags(r *rand.Rand, ranks, total int) []Curve {
	curves := make([]Curve, ranks)
	for i := range curves {
		period, step, fixed, slope := 2+r.IntN(31), 0.6*r.Float64(), r.Float64(), 0.1*math.Exp(r.NormFloat64())
		for n := 1; n <= total; n++ {
			t := fixed + slope*float64(n)
			if n%period != 0 {
				t *= 1 + step
			}
			curves[i] = append(curves[i], Point{float64(n), t})
		}
	}
	return curves
}

func TestSolveFillsTiles(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		ranks := 2 + r.IntN(6)
		total := ranks * (4 + r.IntN(40))
		curves, limits := zigzags(r, ranks, total), make([]int, ranks)
		for i := range limits {
			limits[i] = total/ranks + 1 + r.IntN(total)
		}
		shares, err := Solve(Batch{Total: total, Limits: limits}, curves)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for i, n := range shares {
			if sum += n; n < 1 || n > limits[i] {
				t.Fatalf("seed %d: rank %d of %v has shares out of 1 to %d", seed, i, shares, limits[i])
			}
		}
		got, _ := Slowest(curves, shares)
		if want := tileByTile(total, limits, curves); sum != total || got != want {
			t.Errorf("seed %d: shares %v sum to %d of %d and take %v s, want %v", seed, shares, sum, total, got, want)
		}
	}
}
