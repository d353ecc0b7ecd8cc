package program

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// A comparison on estimates, with two baselines and prices, must compute and draw all figures.
func TestScheduleComparesWithAllFigures(t *testing.T) {
	plots := filepath.Join(t.TempDir(), "plots")
	args := []string{"schedule", "compare", "--policy", "srf", "--baseline", "fcfs,easy", "--jobs", "40", "--seeds", "3",
		"--estimate-error", "1", "--price", "volta=2,turing=1,radeon=1", "--plots", plots}
	o := execute(append(args, "--json"))
	var text struct {
		Policies []struct {
			Policy string `json:"policy"`
			Runs   []compare.Figures
			Cost   struct{ Mean float64 } `json:"cost_per_job"`
			Steady struct{ Mean float64 } `json:"steady_throughput_jobs_per_h"`
		} `json:"policies"`
		Against   []struct{ Baseline string } `json:"against"`
		Estimates string                      `json:"estimates"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &text); o.code != 0 || err != nil {
		t.Fatalf("got exit code %d, %v, %q", o.code, err, o.stderr)
	}
	if len(text.Policies) != 3 || len(text.Against) != 2 || text.Against[1].Baseline != "easy" ||
		!strings.Contains(text.Estimates, "sigma 1") {
		t.Errorf("got %+v", text)
	}
	for _, p := range text.Policies {
		if !(p.Cost.Mean > 0) || !(p.Steady.Mean > 0) || len(p.Runs) != 3 {
			t.Errorf("policy %s: got %+v", p.Policy, p)
			continue
		}
		for _, f := range p.Runs {
			if f.Fairness == nil || !(*f.Fairness > 0 && *f.Fairness <= 1) || f.Steady == nil ||
				math.Abs(f.Steady.Jobs-f.Steady.Little*f.Steady.Arrivals*f.Steady.Time) > 1e-9*f.Steady.Jobs {
				t.Errorf("policy %s: got fairness %v and steady figures %+v", p.Policy, f.Fairness, f.Steady)
			}
		}
	}
	for _, name := range []string{"comparison.png", "comparison.svg", "waits.svg", "gantt-fcfs.svg", "gantt-easy.svg",
		"gantt-srf.svg"} {
		if info, err := os.Stat(filepath.Join(plots, name)); err != nil || info.Size() < 1000 {
			t.Errorf("--plots: %s: got %v, %v", name, info, err)
		}
	}
	o = execute(args[:len(args)-2])
	for _, want := range []string{"L/(lambda W)", "cost/job", "completion x easy", "estimates of the work (sigma 1"} {
		if o.code != 0 || !strings.Contains(o.stdout, want) {
			t.Errorf("got exit code %d and %q, want %q", o.code, o.stdout, want)
		}
	}
	exact := execute([]string{"schedule", "simulate", "--policy", "srf", "--jobs", "40"})
	guessed := execute([]string{"schedule", "simulate", "--policy", "srf", "--jobs", "40", "--estimate-error", "1"})
	if exact.code != 0 || guessed.code != 0 || exact.stdout == guessed.stdout ||
		!strings.Contains(guessed.stdout, "estimates    the policies see estimates") {
		t.Errorf("simulate: got %q and %q with --estimate-error 1", exact.stdout, guessed.stdout)
	}
}

// The scenario of the documentation must print the figures of the page. In all three figures, the policies must have
// the same order as in ADLRO's table: fcfs, static, dqn.
func TestScheduleReproducesTheOrderOfADLRO(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	page, err := os.ReadFile("../../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	const files = "examples/scheduling/"
	command := "schedule compare --input " + files + "cluster.toml --input " + files +
		"jobs.csv --policy fcfs,static,dqn"
	if !strings.Contains(string(page), "\n./hetero-train "+command+"\n") {
		t.Fatalf("docs/scheduling.md: got no command %q", command)
	}
	o := execute(strings.Fields(strings.ReplaceAll(command, files, "../../../"+files)))
	table, _, _ := strings.Cut(o.stdout, "\n\n")
	if o.code != 0 {
		t.Fatalf("got exit code %d and %q", o.code, o.stderr)
	}
	var before []float64
	for i, line := range strings.Split(table, "\n") {
		if !strings.Contains(string(page), "\n"+strings.TrimRight(line, " ")+"\n") {
			t.Errorf("docs/scheduling.md: got no line %q", line)
		}
		if i == 0 {
			continue
		}
		var policy string
		var completion, throughput, utilization, ratio float64
		if _, err := fmt.Sscan(line, &policy, &completion, &ratio, &throughput, &ratio, &utilization); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		now := []float64{-completion, throughput, utilization}
		for k := range before {
			if now[k] <= before[k] {
				t.Errorf("policy %s: got figure %v after %v, want a better one", policy, now[k], before[k])
			}
		}
		before = now
	}
}
