package plan

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// On systems other than Linux, the program cannot read the memory limit of a process.
func TestAnUnknownLimitIsTheMemoryOfTheMachine(t *testing.T) {
	group := memory.Limit{Bytes: 40, Source: "memory.max", Ranks: 2}
	for _, c := range []struct {
		limit memory.Limit
		bytes int64
		ranks int
		want  int64
	}{
		{memory.Limit{}, 100, 1, 100},
		{memory.Limit{}, 100, 2, 50},
		{group, 100, 2, 40},
		{group, 60, 2, 30},
		{group, 0, 2, 40},
		{memory.Limit{}, 0, 1, 0},
	} {
		if got := within(c.limit, c.bytes, c.ranks); got.Bytes != c.want || (got.Bytes == 40) != (got == group) {
			t.Errorf("limit %+v of a machine with %d bytes and %d ranks: got %+v, want %d", c.limit, c.bytes, c.ranks,
				got, c.want)
		}
	}
}

func TestFixedSharesFitTogether(t *testing.T) {
	limit := memory.Limit{Bytes: 50, Ranks: 2}
	known := map[int]replica.Footprint{}
	for share, bytes := range map[int]int64{9: 80, 1: 20, 2: 21} {
		known[share] = replica.Footprint{Account: memory.Account{Limit: limit, Host: []memory.Part{{Bytes: bytes}}}}
	}
	for _, c := range []struct {
		small int
		fits  bool
	}{{1, true}, {2, false}} {
		ranks := []rankPlan{{Share: 9}, {Share: c.small, Fits: true}}
		(&planning{limit: limit}).fitTogether(ranks, known)
		if ranks[0].Fits != c.fits || !ranks[1].Fits {
			t.Errorf("shares of 9 and %d: got %+v", c.small, ranks)
		}
	}
}
