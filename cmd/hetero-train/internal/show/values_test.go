package show

import (
	"math"
	"testing"
	"time"
)

func TestCountsHaveSingularAndPlural(t *testing.T) {
	for n, want := range map[int64]string{0: "0 jobs", 1: "1 job", 2: "2 jobs", -1: "-1 jobs", 101: "101 jobs"} {
		if got := Count(n, "job"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestDurationsAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 850 * time.Nanosecond: "850 ns", 1500 * time.Nanosecond: "1.50 µs", 850 * time.Microsecond: "850 µs",
		999_600 * time.Nanosecond: "1.00 ms",
		24_812 * time.Microsecond: "24.8 ms", 812 * time.Millisecond: "812 ms", 999_700 * time.Microsecond: "1.00 s",
		3_211 * time.Millisecond: "3.21 s", 9_996 * time.Millisecond: "10.0 s",
		59_960 * time.Millisecond: "1m00s", 63_123_450 * time.Microsecond: "1m03s",
		time.Hour - 100*time.Millisecond: "1h00m", 125 * time.Minute: "2h05m", 24*time.Hour - 10*time.Second: "1d00h",
		76 * time.Hour: "3d04h", -2 * time.Second: "-2.00 s", math.MaxInt64: "106751d23h", math.MinInt64: "-106751d23h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestSecondsDoNotOverflow(t *testing.T) {
	for s, want := range map[float64]string{1.5: "1.50 s", 1e300: "106751d23h", -1e300: "-106751d23h",
		math.Inf(1): "106751d23h", math.NaN(): "0 ns"} {
		if got := Duration(Seconds(s)); got != want {
			t.Errorf("%v: got %q, want %q", s, got, want)
		}
	}
}
