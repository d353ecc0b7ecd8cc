package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWhatRanksDoTogether(t *testing.T) {
	at := func(surprises ...float64) []reading {
		var out []reading
		for _, s := range surprises {
			out = append(out, reading{samples: 8, surprise: s, doubt: 0.01 * 0.01})
		}
		return out
	}
	for _, c := range []struct {
		name          string
		learnt        float64 // standard deviation
		readings      []reading
		want, clearly float64
	}{
		{"all slower, as before", 0.08, at(0.05, 0.06, 0.05, 0.04), 0.05, 0.001},
		{"all slower, for the first time", 0, at(0.3, 0.3, 0.31, 0.29), 0.3, 0.005},
		{"chance", 0, at(0.01, -0.01, 0.01, 0), 0, 1e-12},
		{"one rank alone", 0.08, at(0, 0, 0.7, 0), 0, 1e-3},
		{"one of two", 0.08, at(0, 0.7), 0, 0},
		{"two of four", 0.08, at(0, 0, 0.7, 0.7), 0, 0},
		{"all but one", 0.08, at(0.7, 0.7, 0.7, 0), 0.7, 0.001},
		{"no rank has a prediction", 0.08, at(math.NaN(), math.NaN()), 0, 0},
		{"one measurement", 0.08, append(at(0.5), reading{}), 0, 0},
	} {
		together := commonMode{c.learnt * c.learnt, 10}
		got, variance, _ := together.estimate(c.readings)
		if math.Abs(got-c.want) > c.clearly || !(variance >= 0) || variance > 0.08*0.08 {
			t.Errorf("%s: got %v with a variance of %v, want %v", c.name, got, variance, c.want)
		}
	}
	// The learnt common variance must be 0 for independent noise, and the true one for common noise.
	for _, sigma := range []float64{0, 0.08} {
		together, random := newCommonMode(), rand.New(rand.NewPCG(1, 1))
		for range 200 {
			common := sigma * random.NormFloat64()
			readings := at(0, 0, 0, 0)
			for i := range readings {
				readings[i].surprise = common + 0.01*random.NormFloat64()
			}
			together.estimate(readings)
		}
		if got := math.Sqrt(together.variance); math.Abs(got-sigma) > 0.03 {
			t.Errorf("common noise of %v is taken for %v", sigma, got)
		}
	}
}
