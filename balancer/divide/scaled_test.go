package divide

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// tiles returns a curve with a point for each share. Shares that are multiples of the period are faster.
func tiles(period int, steep float64) (c Curve) {
	for b := 1; b <= 64; b++ {
		seconds := 0.01 + steep*float64(b)
		if b%period == 0 {
			seconds *= 0.7
		}
		c = append(c, Point{float64(b), seconds})
	}
	return c
}

// Scaled curves must have the times and the shares of their copies, bit for bit.
func TestScaledCurvesEqualTheirCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	jagged := 0
	for round := range 400 {
		ranks := 1 + r.IntN(12)
		var bases []*Points
		for i, c := range []Curve{tiles(4, 0.001), tiles(8, 0.003), randomCurve(r, 100, true),
			randomCurve(r, 100, false)} {
			bases = append(bases, NewPoints(c, i != round%8))
		}
		if round%4 == 0 { // smooth curves only
			bases = bases[3:]
		}
		scaled, whole := make([]Scaled, ranks), make([]Curve, ranks)
		for i := range scaled {
			s := Scaled{Points: bases[r.IntN(len(bases))]}
			for range r.IntN(4) {
				s.Scale(0.7 + 0.6*r.Float64())
			}
			if r.IntN(3) == 0 {
				s.PerSample, s.Largest = 0.002*r.Float64(), float64(r.IntN(40))
			}
			scaled[i], whole[i] = s, s.Whole()
			for range 20 {
				at := float64(r.IntN(140)) / 2
				if got, want := s.At(at), whole[i].At(at); got != want {
					t.Fatalf("%v at %v: got %v, want %v", s, at, got, want)
				}
			}
			if s.turnsOnce() != whole[i].turnsOnce() {
				t.Fatalf("%v turns once: got %v", whole[i], s.turnsOnce())
			}
			if !s.turnsOnce() {
				jagged++
			}
		}
		b := Batch{Total: ranks + r.IntN(60*ranks), Unit: r.IntN(4)}
		if r.IntN(2) == 0 {
			b.Limits, b.Least = make([]int, ranks), make([]int, ranks)
			for i := range b.Limits {
				b.Limits[i], b.Least[i] = r.IntN(100), r.IntN(6)
			}
		}
		want, wantErr := Solve(b, whole)
		if got, err := SolveScaled(b, scaled); (err == nil) != (wantErr == nil) || !slices.Equal(got, want) {
			t.Fatalf("%+v: got %v (%v), want %v (%v)", b, got, err, want, wantErr)
		}
		if known, err := b.Divide(slices.Repeat([]float64{1}, ranks)); err == nil && b.Least == nil {
			u, _ := b.units(ranks)
			for i := range known {
				known[i] /= u.size
			}
			found := u.jagged(scaled)
			if got := u.jaggedWithin(scaled, known); found != nil && !slices.Equal(got, found) {
				t.Fatalf("%+v of %v: got %v from the known division %v, want %v", b, whole, got, known, found)
			}
		}
		if wantErr == nil {
			slowest, _ := Slowest(whole, want)
			if got, _ := SlowestScaled(scaled, want); got != slowest {
				t.Fatalf("slowest: got %v, want %v", got, slowest)
			}
		}
	}
	if jagged < 500 {
		t.Errorf("only %d curves rise and fall several times", jagged)
	}
}

// With many ranks, only times near a guess are computed. The result must be the same as with all times.
func TestTimesNearAGuessGiveTheBestDivision(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	mixed, shared := 0, 0
	var near [2]int // divisions for which each fraction of the guess is enough
	for round := range 30 {
		ranks := 60 + r.IntN(100)
		types := []*Points{NewPoints(tiles(4, 0.001), true), NewPoints(tiles(8, 0.003), true),
			NewPoints(tiles(16, 0.002), true)}
		curves := make([]Scaled, ranks)
		for i := range curves {
			curves[i].Points = types[r.IntN(len(types))]
			curves[i].Scale(0.8 + 0.4*r.Float64())
		}
		if round%5 == 0 { // a rank that decides the time alone, so that the others give back many units
			curves[0].Scale(3)
		}
		for i := range curves { // least times, which some ranks reach
			if round%4 == 1 && i%10 == 0 {
				curves[i].PerSample, curves[i].Largest = 0.003*r.Float64(), float64(1+r.IntN(40))
			}
		}
		b := Batch{Total: ranks * (6 + r.IntN(30)), Unit: 1 + r.IntN(2)}
		if round%6 > 0 { // otherwise shares beyond the last point are possible
			for i := range curves {
				b.Limits = append(b.Limits, int(curves[i].Curve[len(curves[i].Curve)-1].Samples)-r.IntN(20))
			}
		}
		u, err := b.units(ranks)
		if err != nil {
			t.Fatal(err)
		}
		known, err := b.Divide(slices.Repeat([]float64{1}, ranks))
		if err != nil {
			t.Fatal(err)
		}
		for i := range known {
			known[i] /= u.size
		}
		guess := u.guessJagged(curves)
		within := guess.time(0)
		for i, part := range []float64{0.95, 0.75} {
			if n, _ := u.jaggedNear(curves, within, part*within); n != nil {
				near[i]++
			}
		}
		got, err := SolveScaled(b, curves)
		if want := u.shares(u.jaggedWithin(curves, known)); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v: got %v (%v), want %v", b, got, err, want)
		} else if got, err = SolveScaled(b, Plain(Wholes(curves))); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v: without shared points: got %v (%v), want %v", b, got, err, want)
		}
		if c, many := u.classes(curves, 0.75*within); many && slices.Contains(c.of, -1) {
			mixed++
		} else if many {
			shared++
		}
	}
	if mixed < 3 || shared < 15 {
		t.Errorf("all ranks of %d divisions had classes, and most ranks of %d, want more", shared, mixed)
	}
	if near[0] < 5 || near[0] >= near[1] || near[1] > 28 {
		t.Errorf("the times near the guess were enough for %v of 30 divisions, want most of them, and not all", near)
	}
}

// A curve whose factors are all in use, or that has a least time, must scale like its copy; and a factor of 0 is a
// factor.
func TestScaleMultipliesAllTimes(t *testing.T) {
	full := Scaled{Points: NewPoints(tiles(4, 0.001), true)}
	for _, factor := range []float64{1.1, 0.9, 1.3} {
		full.Scale(factor)
	}
	for name, s := range map[string]Scaled{
		"no factor":     {Points: full.Points},
		"three factors": full,
		"a least time":  {Points: full.Points, PerSample: 0.002, Largest: 30},
	} {
		for _, factor := range []float64{0, 0.5, 1, 3} {
			scaled := s
			scaled.Scale(factor)
			for b := 1.; b < 80; b++ {
				got, want := scaled.At(b), s.At(b)*factor
				if math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, factor %v: got %v s for %v samples, want %v", name, factor, got, b, want)
				}
			}
		}
	}
}

// A factor stops at the longest time, and a later one makes this time shorter. The solver must not leave such a time
// out.
func TestTimesWithinFollowClampedFactors(t *testing.T) {
	s := Scaled{Points: NewPoints(Curve{{1, 1}, {2, MostSeconds}, {3, 2}}, false), Factors: [3]float64{10, 0.5}}
	u := units{size: 1, last: -1, limit: []int{2}}
	for _, seconds := range []float64{5, 20, s.At(2) * (1 - 1e-6), s.At(2), s.At(2) * 1.1} {
		want := 1
		if s.At(2) <= seconds {
			want = 2
		}
		if got := u.upTo(0, &s, seconds); got < want {
			t.Errorf("%v s: got an upper bound of %d units, want at least %d", seconds, got, want)
		}
	}
	if got, want := s.At(2), MostSeconds/2; got != want {
		t.Errorf("got %v s, want %v", got, want)
	}
}
