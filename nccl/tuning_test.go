package nccl

import (
	"slices"
	"testing"
)

func trial(algo, proto string, channels int, bytes int64, seconds float64) Trial {
	return Trial{Combination: Combination{algo, proto, channels}, Bytes: bytes, Seconds: seconds}
}

func TestFastestCombinations(t *testing.T) {
	trials := []Trial{
		trial("", "", 0, 4<<10, 20e-6), trial("", "", 0, 2<<20, 100e-6), trial("", "", 0, 16<<20, 600e-6),
		trial("Tree", "LL", 8, 4<<10, 12e-6), trial("Tree", "LL", 8, 2<<20, 300e-6),
		trial("Tree", "LL", 8, 16<<20, 3000e-6),
		trial("Ring", "Simple", 16, 4<<10, 40e-6), trial("Ring", "Simple", 16, 2<<20, 100e-6),
		trial("Ring", "Simple", 16, 16<<20, 500e-6),
		trial("NVLS", "Simple", 0, 16<<20, 1e-6), // this combination failed at smaller sizes
	}
	best := Fastest(trials)
	want := []Trial{trials[3], trials[1], trials[9]}
	if !slices.Equal(best, want) {
		t.Errorf("got %v, want %v", best, want)
	}
	csv := TunerCSV(best, 1, 8)
	wantCSV := "# collective,min_bytes,max_bytes,algo,proto,channels,nNodes,nRanks,numPipeOps,regBuff\n" +
		"allreduce,0,131071,tree,ll,8,1,8,-1,-1\nallreduce,8388608,1099511627775,nvls,simple,-1,1,8,-1,-1\n"
	if csv != wantCSV {
		t.Errorf("got\n%swant\n%s", csv, wantCSV)
	}
	c, gain := Recommend(trials, 1<<20, 32<<20)
	if c != (Combination{"Ring", "Simple", 16}) || gain < 1.16 || gain > 1.17 {
		t.Errorf("got %v, faster by %.3f; want Ring, Simple, 16 channels by 700/600", c, gain)
	}
	if got, want := c.Table(), "[nccl]\nalgo = \"Ring\"\nproto = \"Simple\"\nmax_ctas = 16\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoiseIsNotRecommended(t *testing.T) {
	trials := []Trial{trial("", "", 0, 2<<20, 100e-6), trial("Ring", "Simple", 0, 2<<20, 98e-6)}
	if c, gain := Recommend(trials, 1, 1<<30); c != (Combination{}) || gain != 1 {
		t.Errorf("got %v by %v, want NCCL's own choice", c, gain)
	}
}

func TestCombinationsBeginWithNCCLsOwn(t *testing.T) {
	list := Combinations([]int{0, 8})
	if list[0] != (Combination{}) || len(list) != 1+7+8 {
		t.Errorf("got %d combinations, the first %v", len(list), list[0])
	}
	for i, c := range list {
		if slices.Contains(list[:i], c) {
			t.Errorf("%v is there twice", c)
		}
	}
}

func TestPairsAndSlowRanks(t *testing.T) {
	if got, want := Pairs(3), [][2]int{{0, 1}, {0, 2}, {1, 2}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Pairs(17); len(got) != 17 || got[16] != [2]int{0, 16} {
		t.Errorf("17 ranks: got %v, want a ring", got)
	}
	var pairs []Pair
	for _, p := range Pairs(4) {
		speed := 40.0
		if p[0] == 2 || p[1] == 2 {
			speed = 11
		}
		pairs = append(pairs, Pair{Ranks: p, BusGBytes: speed})
	}
	if got := SlowRanks(4, pairs); !slices.Equal(got, []int{2}) {
		t.Errorf("got %v, want rank 2", got)
	}
	pairs[0].BusGBytes = 5 // ranks 0 and 1 have a slow link
	if got := SlowRanks(4, pairs); !slices.Equal(got, []int{2}) {
		t.Errorf("with a slow pair: got %v, want rank 2 alone", got)
	}
}
