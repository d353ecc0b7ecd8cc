package divide

import (
	"math/rand/v2"
	"testing"
)

// The inverse of a smoothed curve must be that of a copy, bit for bit.
func TestSmoothedInversesEqualThoseOfCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	found, first := 0, 0
	for range 300 {
		curve := randomCurve(r, 100, true)
		if r.IntN(2) == 0 { // the valley is the first point
			curve[0].Seconds = 0.01
		}
		s := Scaled{Points: NewPoints(curve, r.IntN(2) == 0)}
		if r.IntN(2) == 0 {
			s.Scale(0.5 + r.Float64())
		}
		if r.IntN(3) == 0 {
			s.PerSample, s.Largest = 0.01*r.Float64(), float64(r.IntN(40))
		}
		whole := s.Whole()
		if got, want := s.lowestPoint(), whole.valley(); got != want {
			t.Fatalf("%v: lowest point %d, want %d", whole, got, want)
		}
		ascent := Plain([]Curve{whole.smoothed().ascent()})[0]
		d, all, most := divisible{}, divisible{}, 1+r.IntN(150)
		all.set(&s, most)
		for range 20 { // close to each other, so that many are in the segment of the last one
			var one divisible
			one.set(&s, most)
			seconds := 1 + 0.2*r.Float64()
			if got, want := all.inverse(&s, seconds, most), one.inverse(&s, seconds, most); got != want {
				t.Fatalf("%v within %v s, at most %v: got %v after other times, want %v", whole, seconds, most, got,
					want)
			}
		}
		for range 20 {
			limit, seconds := float64(1+r.IntN(150)), 5*r.Float64()
			got, ok := s.smoothedInverse(s.lowestPoint(), seconds, limit)
			if want := ascent.inverse(seconds, limit, ascent.At(limit)); ok && got != want {
				t.Fatalf("%v within %v s, at most %v: got %v, want %v", whole, seconds, limit, got, want)
			}
			if ok {
				found++
			}
			if s.lowestPoint() > 0 {
				continue
			}
			first++
			if from, known := d.smoothedFrom(&s, seconds, limit); from != got || known != ok {
				t.Fatalf("%v within %v s, at most %v: got %v (%v) from the last point, want %v (%v)", whole, seconds,
					limit, from, known, got, ok)
			}
		}
	}
	if first < 1500 {
		t.Errorf("only %d curves had their valley at the first point", first)
	}
	if found < 1500 {
		t.Errorf("only %d inverses were found", found)
	}
}
