package divide

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCurvesAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Curve
		samples, seconds := 0.0, rapid.Float64Range(0, 1).Draw(t, "first")
		for range rapid.IntRange(1, 6).Draw(t, "points") {
			samples += rapid.Float64Range(0.01, 30).Draw(t, "further")
			seconds += rapid.SampledFrom([]float64{0, 0, 0.001, 0.5, 3}).Draw(t, "longer")
			c = append(c, Point{samples, seconds})
		}
		checkInverses(t, c, rapid.IntRange(1, 120).Draw(t, "limit"), 1.2*seconds+1)
	})
}

// inverse returns the largest real share, at most limit, that a rising curve finishes within seconds. end is the time
// of limit.
func (s *Scaled) inverse(seconds, limit, end float64) float64 {
	if seconds < s.seconds(0) {
		return 0
	}
	if end <= seconds {
		return limit
	}
	return min(s.passes(seconds, limit), limit)
}

// checkInverses compares the results of most and inverse of a rising curve with At, for times up to upTo.
func checkInverses(t *rapid.T, c Curve, limit int, upTo float64) {
	t.Helper()
	for range 5 {
		seconds := upTo * rapid.Float64Range(0, 1).Draw(t, "seconds")
		s := &Plain([]Curve{c})[0]
		n := s.most(seconds, limit)
		if n < 0 || n > limit || n > 0 && c.At(float64(n)) > seconds || n < limit && c.At(float64(n+1)) <= seconds {
			t.Fatalf("%v: most(%v, %d) = %d, which takes %v s, one more %v s", c, seconds, limit, n, c.At(float64(n)),
				c.At(float64(n+1)))
		}
		x := s.inverse(seconds, float64(limit), c.At(float64(limit)))
		if x < 0 || x > float64(limit) || n > 0 && x < float64(n)*(1-1e-9) || c.At(x) > seconds*(1+1e-9)+1e-12 {
			t.Fatalf("%v: inverse(%v, %d) = %v, which takes %v s; %d whole samples fit", c, seconds, limit, x, c.At(x),
				n)
		}
		if above := x*(1+1e-6) + 1e-6; above < float64(limit) && x > 0 && c.At(above) < seconds {
			t.Fatalf("%v: inverse(%v, %d) = %v, but %v take %v s", c, seconds, limit, x, above, c.At(above))
		}
	}
}
