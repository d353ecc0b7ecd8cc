package estimate

import (
	"math"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

func TestABoundLeavesReachableTimes(t *testing.T) {
	c := divide.Curve{{Samples: 1, Seconds: 0.001}, {Samples: 8, Seconds: 0.1}, {Samples: 32, Seconds: 0.2}}
	raised := func(f *fastest) divide.Curve {
		scaled := f.scaled(divide.NewPoints(c, false), 1)
		return scaled.Whole()
	}
	if got := raised(&fastest{}); !slices.Equal(got, c) {
		t.Error("a rank without measurements has a bound")
	}
	f := fastest{perSample: 0.01, largest: 16}
	f.add(0, []float64{1e-9})
	f.add(8, nil)
	got := raised(&f)
	if want := (divide.Curve{{Samples: 1, Seconds: reachable * 0.01}, {Samples: 8, Seconds: 0.1},
		{Samples: 32, Seconds: 0.2}}); math.Abs(got[0].Seconds-want[0].Seconds) > 1e-12 ||
		!slices.Equal(got[1:], want[1:]) {
		t.Errorf("got %v from %v, want %v", got, c, want)
	}
	if f.add(32, []float64{0.2, 0.1, 0.3}); f.largest != 32 || f.perSample != 0.1/32 {
		t.Errorf("got %+v, want the fastest of three steps", f)
	}
}
