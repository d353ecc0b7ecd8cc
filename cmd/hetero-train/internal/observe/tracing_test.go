package observe

import (
	"context"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/trace"
)

// A rank that cannot encode its timeline must still send a message, because the other ranks wait for it.
func TestARankThatCannotPackItsTimelineStillMeetsTheOthers(t *testing.T) {
	other, err := trace.Pack(trace.Rank{Rank: 1, Name: "other"}, mostPacked)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		limit int
		want  int // number of timelines in the result; 0: an error
	}{{"no room", 1, 0}, {"room", mostPacked, 2}} {
		met := false
		ranks, err := meetTimelines(context.Background(), trace.Rank{Name: "own"}, c.limit,
			func(_ context.Context, _ string, own []byte) ([][]byte, error) {
				met = true
				return [][]byte{own, other, nil}, nil // rank 2 could not encode its timeline
			})
		if !met || len(ranks) != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: met %v, got %d timelines and %v, want %d", c.name, met, len(ranks), err, c.want)
		}
	}
}
