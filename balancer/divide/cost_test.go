package divide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSpent(t *testing.T) {
	line := Curve{{1, 0.1}, {10, 1}}
	tests := []struct {
		name       string
		shares     []int
		busy, idle []float64
		want       float64
	}{
		{"all as long", []int{5, 5}, []float64{100, 50}, []float64{10, 5}, 75},
		{"one waits", []int{10, 2}, []float64{100, 50}, []float64{10, 5}, 100 + 50*0.2 + 5*0.8},
		{"one has nothing to do", []int{10, 0}, []float64{100, 50}, []float64{10, 5}, 105},
		{"waiting costs as much", []int{10, 2}, []float64{3, 2}, []float64{3, 2}, 5},
	}
	for _, test := range tests {
		if got := Spent([]Curve{line, line}, test.shares, test.busy, test.idle); math.Abs(
			got-test.want) > 1e-12*test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// convexCurve returns a random curve whose slope increases.
func convexCurve(r *rand.Rand, total int) Curve {
	var c Curve
	at, seconds, slope := 1.0, 0.1+r.Float64(), 0.0
	for range 2 + r.IntN(3) {
		c = append(c, Point{at, seconds})
		slope += 0.01 + r.Float64()
		further := float64(1 + r.IntN(total))
		at, seconds = at+further, seconds+slope*further
	}
	return c
}

// cheapest returns the least energy of all divisions whose time is at most bound.
func cheapest(total int, curves []Curve, busy, idle []float64, bound float64) float64 {
	least, shares := math.Inf(1), make([]int, len(curves))
	var try func(rank, rest int)
	try = func(rank, rest int) {
		if rank == len(curves)-1 {
			shares[rank] = rest
			if t, _ := Slowest(curves, shares); t <= bound*(1+1e-9) {
				least = min(least, Spent(curves, shares, busy, idle))
			}
			return
		}
		for shares[rank] = 1; shares[rank] <= rest-(len(curves)-1-rank); shares[rank]++ {
			n := shares[rank]
			try(rank+1, rest-n)
			shares[rank] = n
		}
	}
	try(0, total)
	return least
}

func TestCheapestIsNearlyAsGoodAsTryingEverything(t *testing.T) {
	exact, cases := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		ranks := 2 + r.IntN(2)
		total := ranks + r.IntN(20)
		curves, busy, idle := make([]Curve, ranks), make([]float64, ranks), make([]float64, ranks)
		for i := range curves {
			curves[i] = convexCurve(r, total)
			idle[i] = 50 * r.Float64()
			busy[i] = idle[i] + 300*r.Float64()
		}
		slowdown := []float64{0, 0.1, 0.5, 2}[r.IntN(4)]
		name := fmt.Sprintf("seed %d: %d samples, slowdown %v", seed, total, slowdown)
		shares, err := Cheapest(Batch{Total: total}, curves, busy, idle, slowdown)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkShares(t, name, Batch{Total: total}, shares)
		fastest, _ := Solve(Batch{Total: total}, curves)
		shortest, _ := Slowest(curves, fastest)
		if seconds, _ := Slowest(curves, shares); seconds > shortest*(1+slowdown)*(1+1e-9) {
			t.Errorf("%s: %v take %v s, the fastest shares %v", name, shares, seconds, shortest)
		}
		got, want := Spent(curves, shares, busy, idle), cheapest(total, curves, busy, idle, shortest*(1+slowdown))
		// The best time may lie between two of the 101 bounds. All ranks may then idle for a hundredth of the slowdown.
		if cases++; got <= want*(1+1e-9) {
			exact++
		} else if got > want*(1+0.01*slowdown+1e-9) {
			t.Errorf("%s: %v spend %v, the cheapest %v", name, shares, got, want)
		}
	}
	if exact < cases*9/10 {
		t.Errorf("the cheapest shares were found in %d of %d cases", exact, cases)
	}
}

func TestCheapestWithoutSlowdownIsAsFastAsCanBe(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		b := Batch{Total: 8 + r.IntN(100), Unit: r.IntN(3)}
		curves := []Curve{randomCurve(r, b.Total, false), randomCurve(r, b.Total, false),
			randomCurve(r, b.Total, false)}
		busy := []float64{300 * r.Float64(), 300 * r.Float64(), 300 * r.Float64()}
		shares, err := Cheapest(b, curves, busy, []float64{1, 1, 1}, 0)
		fastest, _ := Solve(b, curves)
		want, _ := Slowest(curves, fastest)
		if got, _ := Slowest(curves, shares); err != nil || got > want*(1+1e-9) {
			t.Errorf("seed %d: %v take %v s (%v), want %v as %v do", seed, shares, got, err, want, fastest)
		}
	}
}

func TestCheapestRefuses(t *testing.T) {
	line := Curve{{1, 1}, {2, 2}}
	curves, two := []Curve{line, line}, []float64{1, 1}
	tests := []struct {
		name       string
		busy, idle []float64
		slowdown   float64
		want       string
	}{
		{"powers of other length", []float64{1}, two, 0, "got 1 busy and 2 idle values, want 2 of each"},
		{"idle powers of other length", two, nil, 0, "got 2 busy and 0 idle values, want 2 of each"},
		{"a power of NaN", []float64{1, math.NaN()}, two, 0,
			"rank 1: got a busy power of NaN and an idle power of 1, want finite numbers of at least 0"},
		{"a negative idle power", two, []float64{-1, 1}, 0,
			"rank 0: got a busy power of 1 and an idle power of -1, want finite numbers of at least 0"},
		{"slowdown of NaN", two, two, math.NaN(), "slowdown: got NaN, want a finite number of at least 0"},
		{"endless slowdown", two, two, math.Inf(1), "slowdown: got +Inf, want a finite number of at least 0"},
	}
	for _, test := range tests {
		if _, err := Cheapest(Batch{Total: 4}, curves, test.busy, test.idle, test.slowdown); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

func TestMarginalSaysWhatARankIsWorth(t *testing.T) {
	fast, slow, worthless := Curve{{1, 0.01}, {100, 1}}, Curve{{1, 0.04}, {100, 4}}, Curve{{1, 2}, {100, 3}}
	got, err := Marginal(Batch{Total: 100, Limits: []int{100, 100, 100}}, []Curve{fast, slow, worthless})
	if err != nil {
		t.Fatal(err)
	}
	// With all ranks, a step takes 2 s, for the one sample of rank 2. Without rank 2, it takes 0.8 s for 100 samples on
	// ranks with 100 and 25 samples/s.
	for r, want := range []Worth{{2, 2.45}, {2, 2}, {2, 0.8}} {
		if math.Abs(got[r].With-want.With) > 1e-9 || math.Abs(got[r].Without-want.Without) > 0.06 {
			t.Errorf("rank %d: got %+v, want %+v", r, got[r], want)
		}
	}
	got, err = Marginal(Batch{Total: 100, Limits: []int{90, 60, 5}}, []Curve{fast, slow, worthless})
	if err != nil || !math.IsInf(got[0].Without, 1) || !math.IsInf(got[1].Without, 1) || math.IsInf(got[2].Without, 0) {
		t.Errorf("got %+v (%v), want that no rank can replace ranks 0 and 1", got, err)
	}
}

func TestLossCountsCommunication(t *testing.T) {
	for _, test := range []struct{ exposed, want float64 }{{math.NaN(), 1}, {0, 1}, {1, 0.5}} {
		if got := (Worth{With: 1, Without: 2}).Loss(test.exposed); got != test.want {
			t.Errorf("1 s with the rank, 2 s without it, %v s of communication: got %v, want %v", test.exposed, got,
				test.want)
		}
	}
}
