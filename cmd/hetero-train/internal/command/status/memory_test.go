package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// withMemory adds typical memory figures to the ranks of a run.
func withMemory(v runs.View) runs.View {
	for i := range v.Ranks {
		v.Ranks[i].Memory = &runs.MemoryView{Samples: 64, Unified: true,
			Device: []memory.Part{{Name: "weights and gradients", Bytes: 200 << 20}, {Name: "arena", Bytes: 900 << 20}},
			Host: []memory.Part{{Name: "program", Bytes: 120 << 20}, {Name: "data set", Bytes: 90 << 20},
				{Name: "loader", Bytes: 48 << 20}, {Name: "buffers of connections", Bytes: 17 << 20}},
			DeviceBytes: 1100 << 20, HostBytes: 1375 << 20, Limit: 4 << 30,
			LimitSource: "memory.max of /kubepods/burstable/pod1234", Used: 1<<30 + int64(i)<<20}
	}
	return v
}

// On a small terminal, the lines about memory must leave room for the ranks.
func TestMemoryLeavesRoomForTheRanks(t *testing.T) {
	for _, c := range []struct{ ranks, height, memory int }{
		{1, 24, 1}, {2, 24, 2}, {4, 24, 4}, {4, 23, 2}, {4, 22, 1}, {40, 40, 1},
	} {
		v := withMemory(viewOf(c.ranks))
		v.Ranks[c.ranks-1].Memory.Used = 4 << 29 // this rank is nearest to its limit
		got := Text(v, 80, c.height)
		rows := strings.Count(got, "  healthy\n") + strings.Count(got, "  slower than usual,")
		nearest := fmt.Sprintf("memory of rank %d: resident 2.00 GiB, planned 1.34 GiB, limit 4.00 GiB\n", c.ranks-1)
		if lines := strings.Count(got, "\n"); lines > c.height-1 || strings.Count(got, "memory of rank ") != c.memory ||
			!strings.Contains(got, nearest) || c.ranks <= 4 && rows != c.ranks || strings.Contains(got, "plan of rank") {
			t.Errorf("%d ranks, %d lines: got %d lines with %d ranks\n%s\nwant %d lines about memory, with\n%s",
				c.ranks, c.height, lines, rows, got, c.memory, nearest)
		}
	}
}

// If the output is a file, the text must contain all parts of each different plan.
func TestTextOfMemory(t *testing.T) {
	v := withMemory(viewOf(3))
	gpu := v.Ranks[2].Memory
	gpu.Unified, gpu.Used, gpu.DeviceLimit, gpu.HostBytes = false, 0, 80<<30, 275<<20
	v.Ranks[0].Memory.ImageDecoders = 5 << 20
	v.Ranks[1].Memory.Used, v.Ranks[1].Memory.UsedAtLeast, v.Ranks[1].Memory.Limit = 4<<30, true, 0
	const parts = "weights and gradients 200.0 MiB, arena 900.0 MiB"
	const host = "program 120.0 MiB, data set 90.0 MiB, loader 48.0 MiB, buffers of connections 17.0 MiB"
	const source = "; the limit is from memory.max of /kubepods/burstable/pod1234"
	want := []string{
		"memory of rank 0: resident 1.00 GiB, planned 1.34 GiB, limit 4.00 GiB; image decoders at most 5.0 MiB",
		"memory of rank 1: resident at least 4.00 GiB, planned 1.34 GiB, limit unknown",
		"memory of rank 2: planned 275.0 MiB, limit 4.00 GiB; device: planned 1.07 GiB, limit 80.00 GiB",
		"plan of rank 0 with 64 samples: 1.34 GiB: " + parts + ", " + host + source,
		"plan of rank 2 with 64 samples: device 1.07 GiB: " + parts + "; host 275.0 MiB: " + host + source,
	}
	if got := Text(v, 0, 0); !strings.Contains(got, strings.Join(want, "\n")+"\nlast decision") {
		t.Errorf("got\n%s\nwant the lines\n%s", got, strings.Join(want, "\n"))
	}
	v.Ranks = slices.Repeat(v.Ranks, 20)
	if got := Text(v, 0, 0); !strings.Contains(got, "\n… memory of 28 ranks more: --json\n") ||
		strings.Count(got, "plan of rank") != 2 {
		t.Errorf("60 ranks: got\n%s", got)
	}
}
