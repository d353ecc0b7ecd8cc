package straggler_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/straggler"
)

var nan = math.NaN()

func TestMedianRule(t *testing.T) {
	cases := []struct {
		name    string
		windows [][]float64
		want    []bool // verdicts after the last window
	}{
		{"slow twice", [][]float64{{1, 1, 1.6}, {1, 1, 1.6}}, []bool{false, false, true}},
		{"slow once", [][]float64{{1, 1, 1.6}}, []bool{false, false, false}},
		{"slow, well, slow", [][]float64{{1, 1, 1.6}, {1, 1, 1}, {1, 1, 1.6}}, []bool{false, false, false}},
		{"well again after being slow", [][]float64{{1, 1, 1.6}, {1, 1, 1.6}, {1, 1, 1}}, []bool{false, false, false}},
		{"1.5 times the median is not over it", [][]float64{{1, 1, 1.5}, {1, 1, 1.5}}, []bool{false, false, false}},
		{"of two ranks the faster is the median", [][]float64{{1.6, 1}, {1.6, 1}}, []bool{true, false}},
		{"of four ranks the second is the median", [][]float64{{1, 1.1, 1.6, 1.7}, {1, 1.1, 1.6, 1.7}},
			[]bool{false, false, false, true}},
		{"fast ranks are none", [][]float64{{0.1, 1, 1}, {0.1, 1, 1}}, []bool{false, false, false}},
		{"ranks without samples are left out of the median", [][]float64{
			{0, 0, 0, 1, 1, 1.6}, {nan, nan, nan, 1, 1, 1.6}}, []bool{false, false, false, false, false, true}},
		{"a window without measurement breaks the run", [][]float64{{1, 1, 1.6}, {1, 1, nan}, {1, 1, 1.6}},
			[]bool{false, false, false}},
		{"infinite is no measurement", [][]float64{{1, 1, math.Inf(1)}, {1, 1, math.Inf(1)}},
			[]bool{false, false, false}},
		{"one rank has none to compare with", [][]float64{{1}, {100}, {100}}, []bool{false}},
		{"nothing is measured", [][]float64{{nan, nan}, {nan, nan}}, []bool{false, false}},
		{"another number of ranks resets the history", [][]float64{{1, 1, 1.6}, {1, 1.6}}, []bool{false, false}},
	}
	for _, c := range cases {
		var rule straggler.MedianRule
		var got []bool
		for _, window := range c.windows {
			got = rule.Observe(window)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWaitingNamesWhoWaitsForWhom(t *testing.T) {
	var w straggler.Waiting
	for _, step := range [][]float64{{1, 2, 4}, {1, 3, 2}, {1, 2, 4}, {nan, 2, 0}, {nan, nan, nan}} {
		w.Add(step)
	}
	if want := []float64{3 + 2 + 3, 2 + 0 + 2, 0 + 1 + 0}; !slices.Equal(w.Seconds, want) {
		t.Errorf("waited: got %v, want %v", w.Seconds, want)
	}
	if want := []float64{0, 3, 10}; !slices.Equal(w.Caused, want) {
		t.Errorf("caused: got %v, want %v", w.Caused, want)
	}
	if want := []int{0, 1, 2}; !slices.Equal(w.Slowest, want) || w.Steps != 3 {
		t.Errorf("slowest: got %v of %d steps, want %v of 3", w.Slowest, w.Steps, want)
	}
	if got, want := w.Imbalance(), (0.75+2.0/3+0.75)/3; math.Abs(got-want) > 1e-15 {
		t.Errorf("imbalance: got %v, want %v", got, want)
	}
	w.Reset()
	w.Add([]float64{2, 2, 2})
	if w.Steps != 1 || w.Imbalance() != 0 || slices.Max(w.Seconds) != 0 || w.Slowest[0] != 1 {
		t.Errorf("after a reset and a balanced step: got %+v", w)
	}
}

func TestWaitingAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var w straggler.Waiting
	step := make([]float64, 7)
	for range 1000 {
		for i := range step {
			step[i] = r.Float64() + 0.1
		}
		w.Add(step)
	}
	waited, caused, steps := 0.0, 0.0, 0
	for i := range step {
		waited, caused, steps = waited+w.Seconds[i], caused+w.Caused[i], steps+w.Slowest[i]
	}
	if math.Abs(waited-caused) > 1e-9*waited || steps != 1000 {
		t.Errorf("waited %v s, caused %v s, slowest in %d of 1000 steps", waited, caused, steps)
	}
	if got := testing.AllocsPerRun(100, func() { w.Add(step) }); got != 0 {
		t.Errorf("a step allocates %v times", got)
	}
}
