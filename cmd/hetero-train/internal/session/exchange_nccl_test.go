package session

import (
	"testing"
	"time"
)

// For communicators, a time-out of 0 means no time-out. A very short time-out must therefore not become 0.
func TestNoTimeoutIsNone(t *testing.T) {
	for _, c := range []struct {
		s    float64
		want time.Duration
	}{{0, 0}, {1e-12, 1}, {30, 30 * time.Second}, {1e300, 10 * 365 * 24 * time.Hour}} {
		if got := Seconds(c.s); got != c.want {
			t.Errorf("%v s: got %v, want %v", c.s, got, c.want)
		}
	}
}
