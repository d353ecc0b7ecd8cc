package program

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// TestRanksTakeTheirOwnDevice: by number on the machine, unless told otherwise; two on one only where that is allowed.
func TestRanksTakeTheirOwnDevice(t *testing.T) {
	for _, c := range []struct {
		index, local, count int
		share               bool
		want                int
		err                 string
	}{
		{index: -1, local: 0, count: 2, want: 0},
		{index: -1, local: 1, count: 2, want: 1},
		{index: -1, local: 1, count: 1, want: 0}, // a launcher that shows each rank its own
		{index: -1, local: -1, count: 1, want: 0},
		{index: -1, local: 2, count: 2, err: "rank 2 of this machine has no device cuda of its own: there are 2; start at most as many ranks (parallel.ranks), or set device.share_gpu = true"},
		{index: -1, local: 5, count: 2, share: true, want: 1},
		{index: -1, local: -1, count: 2, err: "which of 2 devices cuda this rank takes is not known"},
		{index: 1, local: 0, count: 2, want: 1},
		{index: 2, local: 0, count: 2, err: "device.index: got 2, want one of the 2 devices cuda that this process sees, from 0"},
	} {
		p := placement{index: c.index, localRank: c.local, share: c.share}
		got, err := p.pick("cuda", c.count)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%+v: got %d, %v", c, got, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || exit.Code(err) != exit.Usage):
			t.Errorf("%+v: got %v, exit code %d", c, err, exit.Code(err))
		}
	}
}

// TestRanksGetASliceEach: a process sees one MIG slice, so the supervisor deals them out.
func TestRanksGetASliceEach(t *testing.T) {
	env := environment{environ: []string{"CUDA_VISIBLE_DEVICES=MIG-1,MIG-2"}}
	for local, want := range []string{"MIG-1", "MIG-2"} {
		if got := rankEnvironment(env, local); got[len(got)-1] != "CUDA_VISIBLE_DEVICES="+want {
			t.Errorf("rank %d: got %q, want %s", local, got, want)
		}
	}
	env = environment{environ: []string{"CUDA_VISIBLE_DEVICES=0,1"}}
	if got := rankEnvironment(env, 1); len(got) != 1 {
		t.Errorf("two GPUs: got %q, want what the supervisor has", got)
	}
}
