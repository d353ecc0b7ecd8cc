package devices

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
)

func TestAShareOfPeakIsNeverAboveOne(t *testing.T) {
	for _, c := range []struct {
		name          string
		reached, peak float64 // in FLOP/s
		want          float64
		known         bool
	}{
		{"below", 50, 100, 0.5, true},
		{"at the peak", 100, 100, 1, true},
		{"above: the peak is wrong", 481, 100, 0, false},
		{"not measured", 50, 0, 0, false},
	} {
		if got, known := FractionOfPeak(c.reached, device.Reached{PerSecond: c.peak}); got != c.want ||
			known != c.known {
			t.Errorf("%s: got %v, %v; want %v, %v", c.name, got, known, c.want, c.known)
		}
	}
}
