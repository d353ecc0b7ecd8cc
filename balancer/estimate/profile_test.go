package estimate

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

func TestSharesOfAProfileSpanTheExpectedShare(t *testing.T) {
	for _, test := range []struct {
		expected   float64
		most, unit int
		want       []int
	}{
		{60, 512, 1, []int{64, 128, 32, 60, 65, 16, 72, 68, 80, 96, 63, 256}},
		{100, 130, 1, []int{128, 64, 100, 129, 32, 127}}, // the limit of memory is 130
		{60, 512, 8, []int{64, 128, 32, 72, 16, 80, 96, 256}},
		{3.4, 64, 1, []int{4, 8, 2, 3, 5, 1, 12, 16}},
		{0.2, 64, 1, []int{1, 2, 4}}, // far less than a sample
		{7, 4, 1, []int{4, 2, 1, 3}},
		{7, 4, 8, nil}, // no multiple of the unit fits
	} {
		got := ProfileShares(test.expected, test.most, test.unit)
		if test.expected == 3.4 || test.expected == 0.2 {
			slices.Sort(got)
			slices.Sort(test.want)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("expected %v of at most %d in multiples of %d: got %v, want %v", test.expected, test.most,
				test.unit, got, test.want)
		}
	}
}

// A profile with a standard error of 10 % must leave the next share more uncertain than one with 1 %.
func TestErrorsOfCurvesWidenThePosterior(t *testing.T) {
	c := divide.Curve{{Samples: 16, Seconds: 0.016}, {Samples: 32, Seconds: 0.032}, {Samples: 64, Seconds: 0.064}}
	sure, unsure := newPosterior(c, 0.01, 256), newPosterior(c, 0.1, 256)
	for _, e := range []*posterior{sure, unsure} {
		e.update(&reading{samples: 32, log: e.cells[1].log, variance: 1e-6}, 0, 0)
	}
	_, less := sure.expect(64)
	_, more := unsure.expect(64)
	if !(more > 10*less) {
		t.Errorf("got a variance of %v with an error of 10 %% and %v with 1 %%, want more than ten times as much", more,
			less)
	}
}
