package status

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

func TestTheTitleStatesTheGainOrWhyItIsUnknown(t *testing.T) {
	one, equal, low, high := 1.0, 1.19, 1.1, 1.25
	for want, d := range map[string]runs.Decision{
		" | 1.19 times faster than equal shares (1.10 to 1.25)": {Seconds: &one, Equal: &equal,
			EqualLow: &low, EqualHigh: &high},
		" | as fast as equal shares": {Seconds: &one, Equal: &one, EqualLow: &one,
			EqualHigh: &one},
		" | 100.0 % of the oracle | gain over equal shares unknown: rank 2 was not measured": {OfOracle: &one,
			EqualWhy: "rank 2 was not measured"},
		" | 100.0 % of the oracle; busy times vary":    {OfOracle: &one, Differs: "busy times vary"},
		" | fraction of the oracle unknown: no curves": {Unknown: "no curves", EqualWhy: "no curves"},
	} {
		if got := titleOf(runs.View{Decision: &d}); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q at its end", got, want)
		}
	}
}
