package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// playWindow passes a window to the model. Each step takes 0.01 s, plus 0.001 s per sample.
func playWindow(m *Model, random *rand.Rand, shares []int, steps int, noise float64) {
	w := &Window{Shares: shares, Seconds: make([][]float64, len(shares)), Opening: m.windows == 0 ||
		steps < m.options.Interval, Blind: true}
	for r, n := range shares {
		for range steps {
			w.Seconds[r] = append(w.Seconds[r], sloped(n)*math.Exp(noise*random.NormFloat64()))
		}
	}
	m.Learn(w)
}

// The first step says nothing about the noise. Once other steps show the noise, the time of the first step must become
// as uncertain as this noise.
func TestTheFirstStepsAreAsUncertainAsLaterStepsShow(t *testing.T) {
	const noise = 0.3
	m := New(Options{Limits: slices.Repeat([]int{256}, 8), Active: slices.Repeat([]bool{true}, 8), Interval: 10})
	random := rand.New(rand.NewPCG(3, 99))
	equal, other := slices.Repeat([]int{32}, 8), slices.Repeat([]int{24, 40}, 4)
	playWindow(m, random, equal, 1, noise)
	m.Fit(equal, true)
	for _, steps := range []int{2, 4, 8} {
		playWindow(m, random, other, steps, noise)
		m.Fit(other, true)
	}
	for r, e := range m.ranks {
		if sigma := math.Sqrt(e.noise); math.Abs(math.Log(sigma/noise)) > 0.3 {
			t.Errorf("rank %d: got a noise of %.2f, want %.2f", r, sigma, noise)
		}
		at := e.cell(32)
		if at < 0 {
			continue // the step was dropped, because the model attributed its time to the start of the program
		}
		if sigma := math.Sqrt(e.cov[at][at]); sigma < 0.7*noise {
			t.Errorf("rank %d: the first step has a standard error of %.2f, want at least %.2f", r, sigma, 0.7*noise)
		}
	}
}

// The noise of the first windows must be right on average. This includes two ranks, whose median is their mean, and a
// rank that was not measured in every step.
func TestTheNoiseOfTheFirstWindowsIsUnbiased(t *testing.T) {
	for _, steps := range [][]int{{2, 2}, {8, 8, 8, 8, 8, 8, 8, 2}, slices.Repeat([]int{2}, 15)} {
		const noise, windows = 0.2, 4000
		r := rand.New(rand.NewPCG(1, 2))
		var o openingNoise
		degrees := 0
		for range windows {
			seconds := make([][]float64, len(steps))
			for rank, n := range steps {
				for range n {
					seconds[rank] = append(seconds[rank], math.Exp(noise*r.NormFloat64()))
				}
				degrees += n - 1
			}
			o.pool(nil, seconds, &deviceTypes{})
		}
		if o.squares.N != degrees {
			t.Errorf("ranks with %v steps: got %d degrees of freedom, want %d", steps, o.squares.N, degrees)
		}
		if got := math.Sqrt(o.squares.Or(0)); math.Abs(got/noise-1) > 0.05 {
			t.Errorf("ranks with %v steps: got a noise of %.4f, want %v", steps, got, noise)
		}
	}
}
