package devices

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// By default, each rank uses the device whose number is the rank's number on the machine. Only device.share_gpu allows
// two ranks to use the same device.
func TestRanksTakeTheirOwnDevice(t *testing.T) {
	for _, c := range []struct {
		index, local, count int
		share               bool
		want                int
		err                 string
	}{
		{index: -1, local: 0, count: 2, want: 0},
		{index: -1, local: 1, count: 2, want: 1},
		{index: -1, local: 1, count: 1, want: 0}, // the launcher makes only its own GPU visible to each rank
		{index: -1, local: -1, count: 1, want: 0},
		{index: -1, local: 2, count: 2, err: "rank 2 of this machine needs its own device cuda, but the machine has 2: start fewer ranks (parallel.ranks), or set device.share_gpu = true"},
		{index: -1, local: 5, count: 2, share: true, want: 1},
		{index: -1, local: -1, count: 2, err: "cannot choose one of the 2 cuda devices"},
		{index: 1, local: 0, count: 2, want: 1},
		{
			index: 2, local: 0, count: 2, err: "device.index: got 2, want the number of one of the 2 cuda devices that are visible to this process, from 0"},
	} {
		p := Placement{Index: c.index, LocalRank: c.local, ShareGPU: c.share}
		got, err := p.pick("cuda", c.count)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%+v: got %d, %v", c, got, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || exit.Code(err) != exit.Usage):
			t.Errorf("%+v: got %v, exit code %d", c, err, exit.Code(err))
		}
	}
}
