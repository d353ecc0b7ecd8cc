package balancer_test

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/profiler/account"
)

func TestAnUnknownGainHasAReason(t *testing.T) {
	nan := math.NaN()
	for want, e := range map[string]balancer.Explanation{
		"":                           {Equal: 2, Lost: account.Account{Step: 1}},
		"the equal share is far":     {Equal: nan, EqualUnknown: "the equal share is far", Unknown: "no curves"},
		"no curves":                  {Equal: nan, Unknown: "no curves"},
		"no whole step was measured": {Equal: nan},
	} {
		if got := e.GainUnknown(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
