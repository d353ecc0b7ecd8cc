package stat

import (
	"math"
	"testing"
)

func TestExpIsThatOfTheStandardLibrary(t *testing.T) {
	for x := -50.0; x <= 50; x += 0.0137 {
		if got, want := Exp(x), math.Exp(x); math.Abs(got-want) > 2e-15*want {
			t.Errorf("Exp(%v): got %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, math.Inf(-1): math.Exp(-700), math.Inf(1): math.Exp(700)} {
		if got := Exp(x); math.Abs(got-want) > 1e-14*want {
			t.Errorf("Exp(%v): got %v, want %v", x, got, want)
		}
	}
}
