package divide

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// oneByOne is a slow twin of [units.jagged], with the same results. Within the shortest possible time, each rank takes
// as many units as it can. The slowest rank then gives back one unit after the other; ties go to the lower rank. It
// returns nil shares if ranks must skip units whose times are too long, because then another rule decides.
func (u units) oneByOne(curves []Scaled) (seconds float64, shares []int, gives int) {
	times := make([][]float64, len(curves)) // by rank and units
	var all []float64
	for r := range curves {
		times[r] = []float64{0}
		for n := 1; n <= u.limit[r]; n++ {
			times[r] = append(times[r], curves[r].At(float64(u.samples(r, n))))
		}
		all = append(all, times[r][1:]...)
	}
	slices.Sort(all)
	// possible reports whether shares within a time have the sum of the batch.
	possible := func(seconds float64) bool {
		sums := make([]bool, u.total+1)
		sums[0] = true
		for r := range times {
			if u.limit[r] == 0 {
				continue
			}
			next := make([]bool, u.total+1)
			for n := 1; n <= u.limit[r]; n++ {
				if times[r][n] <= seconds {
					for sum := n; sum <= u.total; sum++ {
						next[sum] = next[sum] || sums[sum-n]
					}
				}
			}
			sums = next
		}
		return sums[u.total]
	}
	at := sort.Search(len(all), func(i int) bool { return possible(all[i]) })
	seconds = all[at]
	shares, run := make([]int, len(curves)), make([]int, len(curves))
	gives = -u.total
	for r := range shares {
		for n := 1; n <= u.limit[r]; n++ {
			if times[r][n] <= seconds {
				shares[r] = n
			}
		}
		for run[r] < shares[r]-1 && times[r][shares[r]-run[r]-1] <= seconds {
			run[r]++
		}
		gives += shares[r]
	}
	for range gives {
		slowest := -1
		for r := range shares {
			if run[r] > 0 && (slowest < 0 || times[r][shares[r]] > times[slowest][shares[slowest]]) {
				slowest = r
			}
		}
		if slowest < 0 {
			return seconds, nil, gives
		}
		shares[slowest]--
		run[slowest]--
	}
	return seconds, shares, gives
}

// The solver gives back many units at once. The shares must be those of a search that gives back one after the other,
// and the time must be that of all possible sums.
func TestJaggedDivisionsEqualThoseOneByOne(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 3))
	compared, many, skips := 0, 0, 0
	for round := range 120 {
		ranks, limit := 2+r.IntN(6), 40
		if round%4 == 0 {
			ranks, limit = 24, 60
		}
		curves, limits := make([]Curve, ranks), make([]int, ranks)
		for i := range curves {
			limits[i] = limit/2 + r.IntN(limit/2)
			level := 0.001 * float64(1+r.IntN(3)) // few levels, so that ranks have equal times
			period := 4 << r.IntN(3)
			for b := 1; b <= limit; b++ {
				seconds := 0.01 + level*float64(b)
				if b%period == 0 {
					seconds *= 0.6
				} else if round%3 == 0 { // only whole tiles are fast
					seconds += level * 20
				}
				curves[i] = append(curves[i], Point{float64(b), seconds})
			}
		}
		sum, tight := 0, 0
		for _, n := range limits {
			sum += n
		}
		if round%4 == 0 { // the slowest rank alone decides the time
			limits[0], curves[0] = 1, Curve{{1, 0.2 + r.Float64()/10}}
		}
		if round%8 == 4 { // nearly all units take the time of the step: no time separates those to give back
			for i := range curves {
				tiles := 1 + r.IntN(3)
				limits[i], curves[i] = 16*tiles+15, nil
				for b := 1; b <= limits[i]; b++ {
					seconds := 1.
					if b%16 == 0 {
						seconds = 0.9
					}
					curves[i] = append(curves[i], Point{float64(b), seconds})
				}
				tight += 16 * tiles
			}
		}
		b := Batch{Total: ranks + r.IntN(sum/2), Unit: 1 + r.IntN(2), Limits: limits}
		if round%4 == 0 {
			b.Total, b.Unit = ranks+r.IntN(sum/4), 1
			if tight > 0 {
				b.Total = tight + 1 + r.IntN(90)
			}
		}
		u, err := b.units(ranks)
		if err != nil {
			continue
		}
		got, err := Solve(b, curves)
		if err != nil {
			t.Fatal(err)
		}
		seconds, want, gives := u.oneByOne(Plain(curves))
		if slowest, _ := Slowest(curves, got); math.Float64bits(slowest) != math.Float64bits(seconds) {
			t.Fatalf("round %d: got %v s, want %v s", round, slowest, seconds)
		}
		if want == nil {
			skips++
			continue
		}
		if compared++; gives > 256 {
			many++
		}
		if !slices.Equal(got, u.shares(want)) {
			t.Fatalf("round %d, %d units back: got %v, want %v", round, gives, got, u.shares(want))
		}
	}
	t.Logf("%d divisions equal, %d of them with more than 256 units back, %d with skipped units", compared, many, skips)
	if compared < 50 || many < 10 || skips < 10 {
		t.Errorf("got %d comparable divisions, %d with more than 256 units back, and %d with skipped units", compared,
			many, skips)
	}
}
