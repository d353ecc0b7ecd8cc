package data

import (
	"slices"
	"testing"
)

func TestSomeOfManySamples(t *testing.T) {
	for _, c := range []struct{ n, most, want int }{{0, 10, 0}, {5, 10, 5}, {1000, 10, 10}, {1<<31 - 1, 1000, 1000}} {
		got := someOf(c.n, c.most)
		if len(got) != c.want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != c.want ||
			c.want > 0 && (got[0] < 0 || got[c.want-1] >= c.n) {
			t.Errorf("%d of %d: got %d numbers: %v", c.most, c.n, len(got), got[:min(len(got), 10)])
		}
	}
}
