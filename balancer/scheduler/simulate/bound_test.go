package simulate_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// With many jobs, jobs of 8 GPUs wait for days under gang alone. With the default bound, the longest wait for each
// number of GPUs must be at most twice that of EASY backfilling. As many jobs per hour must end.
func TestNoJobStarves(t *testing.T) {
	setup := workload.Default()
	for seed := range uint64(3) {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 4000, Load: 0.8, Seed: 500 + seed})
		if err != nil {
			t.Fatal(err)
		}
		figures := map[string]compare.Figures{}
		for _, name := range []string{"easy", "gang", "limited"} {
			named := name
			if name == "limited" {
				named = "gang"
			}
			p, err := scheduler.New(named, scheduler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if name == "limited" {
				p = scheduler.Limit(p, scheduler.DefaultBound, false)
			}
			r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if figures[name], err = compare.FiguresOf(w, r); err != nil {
				t.Fatal(err)
			}
		}
		easy, alone, limited := figures["easy"], figures["gang"], figures["limited"]
		for i, g := range limited.Gangs {
			t.Logf("seed %d, %d GPUs: longest wait %.0f s, gang alone %.0f s, easy %.0f s", seed, g.GPUs, g.Worst,
				alone.Gangs[i].Worst, easy.Gangs[i].Worst)
			if most := 2 * easy.Gangs[i].Worst; g.Worst > most {
				t.Errorf(
					"seed %d, jobs of %d GPUs: got a longest wait of %.0f s, want at most %.0f s, twice that of easy",
					seed, g.GPUs, g.Worst, most)
			}
		}
		if last := len(easy.Gangs) - 1; alone.Gangs[last].Worst < 4*easy.Gangs[last].Worst {
			t.Errorf("seed %d: got a longest wait of %.0f s with gang alone, so this case does not show what the bound prevents",
				seed, alone.Gangs[last].Worst)
		}
		if least := 0.98 * easy.Throughput; limited.Throughput < least {
			t.Errorf("seed %d: got %.2f jobs/h, want at least %.2f", seed, limited.Throughput, least)
		}
		if !(limited.Completion < 0.8*easy.Completion) {
			t.Errorf("seed %d: got a mean completion time of %.0f s, want less than 0.8 times the %.0f s of easy", seed,
				limited.Completion, easy.Completion)
		}
	}
}
