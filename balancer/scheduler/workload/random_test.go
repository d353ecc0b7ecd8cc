package workload

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Random clusters must differ, must be within their limits, and must hold all jobs that are generated for them.
func TestRandomClustersHoldTheirJobs(t *testing.T) {
	sizes, types, large := map[int]bool{}, map[int]bool{}, false
	for seed := range uint64(200) {
		s := Random(seed)
		c := s.Cluster
		sizes[len(c.GPUs)], types[len(c.Types)] = true, true
		if len(c.Machines) > RandomMachines || len(c.GPUs) < randomLeast || len(c.GPUs) > randomMost {
			t.Errorf("seed %d: got %d machines with %d GPUs", seed, len(c.Machines), len(c.GPUs))
		}
		for _, m := range c.Machines {
			if len(m.GPUs) > RandomGPUs {
				t.Errorf("seed %d: got a machine with %d GPUs", seed, len(m.GPUs))
			}
		}
		w, err := Generate(s, Arrivals{Jobs: 50, Load: 1, Seed: seed})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, j := range w.Jobs {
			large = large || j.GPUs == 8
			if err := scheduler.Holds(c, w, s.Speeds, i); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
		again := Random(seed)
		if len(again.Cluster.GPUs) != len(c.GPUs) || !slices.Equal(again.Speeds.packed, s.Speeds.packed) ||
			!slices.Equal(again.Speeds.Pairs, s.Speeds.Pairs) {
			t.Errorf("seed %d: two calls differ", seed)
		}
	}
	if len(sizes) < 8 || len(types) != randomTypes || !large {
		t.Errorf("got %d numbers of GPUs, %d numbers of types, gangs of 8 GPUs %v, want more variety", len(sizes),
			len(types), large)
	}
}
