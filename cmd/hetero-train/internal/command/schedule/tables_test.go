package schedule

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// number returns the value of an environment variable that changes the size of a table. usual is the default.
func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("%s: got %q, want a number of at least 2", name, text)
	}
	return n
}

// TestUncertainTables prints the table of docs/benchmarks/scheduling.md that compares estimates on long lists of jobs.
// Each run with estimates is compared with runs of the same policy and jobs, with exact work and with stated estimates.
// HETERO_TABLE_JOBS and HETERO_TABLE_LISTS change the size of the table.
func TestUncertainTables(t *testing.T) {
	needtest.Large.Need(t, "takes an hour")
	jobs, lists := number(t, "HETERO_TABLE_JOBS", 10_000), number(t, "HETERO_TABLE_LISTS", 6)
	variants := []struct {
		name    string
		options uncertain.Options
	}{
		{"exact", uncertain.Options{}},
		{"stated", uncertain.Options{Seed: 1, Sigma: 1}},
		{"history", uncertain.Options{Seed: 1, Sigma: 1, History: true}},
		{"censored", uncertain.Options{Seed: 1, Sigma: 1, History: true, Running: true}},
	}
	names := []string{"easy", "gang", "srpt", "las", "dqn"}
	setup := workload.Default()
	for _, load := range []float64{0.5, 1, 1.5} {
		seeds := make([]uint64, lists)
		runs := make([][]compare.Runs, len(names)) // by policy and variant
		for p := range names {
			for _, v := range variants {
				runs[p] = append(runs[p], compare.Runs{Policy: v.name, Figures: make([]compare.Figures, lists)})
			}
		}
		work := make(chan int)
		var workers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				bound := scheduler.DefaultBound
				own := &policies{command: "tables", device: "cpu", bound: &bound,
					warn: func(text string) { t.Log(text) }}
				defer own.close()
				for at := range work {
					i, p, v := at%lists, at/lists/len(variants), at/lists%len(variants)
					w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: load, Seed: seeds[i]})
					if err != nil {
						t.Error(err)
						continue
					}
					policy, err := own.get(names[p])
					if err != nil {
						t.Error(err)
						continue
					}
					o := variants[v].options
					o.List = seeds[i]
					r, err := simulate.Run(uncertain.Hide(policy, o), setup.Cluster, w, setup.Speeds,
						simulate.Options{})
					if err != nil {
						t.Error(err)
						continue
					}
					if runs[p][v].Figures[i], err = compare.FiguresOf(w, r); err != nil {
						t.Error(err)
					}
					runs[p][v].Figures[i].Judge(setup.Cluster, w, setup.Speeds, nil, r)
				}
			})
		}
		for i := range seeds {
			seeds[i] = 10_000 + uint64(i)
		}
		for at := range lists * len(names) * len(variants) {
			work <- at
		}
		close(work)
		workers.Wait()
		if t.Failed() {
			return
		}
		var table strings.Builder
		for p, name := range names {
			study, err := compare.NewAgainst([]string{"exact", "stated"}, seeds, runs[p])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&table, "| %g | `%s` |", load, name)
			for v, row := range study.Rows {
				fmt.Fprintf(&table, " %.0f, %.2f", row.Completion.Mean, row.Slowdown.Mean)
				for b := range min(v, 2) {
					r := study.Against[b].Policies[v].Completion
					fmt.Fprintf(&table, "; x %s %.3f (%.3f to %.3f), p %s", study.Against[b].Baseline, r.Mean, r.Low,
						r.High, probability(r.Student))
				}
				table.WriteString(" |")
			}
			table.WriteString("\n")
		}
		t.Logf("%d lists of %d jobs, load %g\n%s", lists, jobs, load, table.String())
	}
}
