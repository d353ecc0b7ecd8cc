package process

import "testing"

// The counts are peaks of /proc/PID/fd of real runs: at most 1.3 times as many may be demanded, and no fewer.
func TestNeedOfFilesFollowsRealRuns(t *testing.T) {
	for _, c := range []struct {
		name string
		need FileNeed
		peak int
	}{
		{"1 rank", FileNeed{Ranks: 1, Local: 1, First: true, Shared: true}, 24},
		{"8 ranks", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true, Shared: true}, 59},
		{"24 ranks", FileNeed{Ranks: 24, Local: 24, First: true, Starts: true, Shared: true}, 139},
		{"8 ranks over TCP", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true}, 61},
		{"24 ranks over TCP", FileNeed{Ranks: 24, Local: 24, First: true, Starts: true}, 141},
		{"8 ranks, encrypted", FileNeed{Ranks: 8, Local: 8, First: true, Starts: true, Encrypt: true}, 90},
		{"another rank of 24 over TCP", FileNeed{Ranks: 24, Local: 1}, 63},
		{"another rank of 8, encrypted", FileNeed{Ranks: 8, Local: 1, Encrypt: true}, 59},
	} {
		if got := c.need.Most(); got < c.peak || float64(got) > 1.3*float64(c.peak) {
			t.Errorf("%s: got %d files, want %d to %.0f", c.name, got, c.peak, 1.3*float64(c.peak))
		}
	}
}
