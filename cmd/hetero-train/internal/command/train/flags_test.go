package train

import "testing"

func TestBatchSizeForEachRankIsMultiplied(t *testing.T) {
	for _, c := range []struct {
		perRank string
		ranks   int
		want    string
	}{{"32", 4, "128"}, {"32", 1, "32"}, {"-1", 2, "-2"}, {"many", 4, "many"}, {"99999999999", 4, "99999999999"}} {
		if got := timesRanks(c.perRank, c.ranks); got != c.want {
			t.Errorf("%s for each of %d ranks: got %s, want %s", c.perRank, c.ranks, got, c.want)
		}
	}
}
