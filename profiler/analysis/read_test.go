package analysis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

var twoRanks = fakeRun{policy: "none", scenario: "equal", seed: 1, shares: []int64{8, 8}, speed: []float64{100, 100},
	steps: 60}

func TestRunsThatCannotBeUsedAreNamedWithAReason(t *testing.T) {
	for name, c := range map[string]struct {
		run    fakeRun
		damage func(t *testing.T, dir string)
		says   string
	}{
		"cut short": {run: fakeRun{policy: "none", scenario: "equal", seed: 1, shares: []int64{8},
			speed: []float64{1}, steps: 60, unfinished: true}, says: "not finished"},
		"failed": {run: fakeRun{policy: "none", scenario: "equal", seed: 1, shares: []int64{8},
			speed: []float64{1}, steps: 60, exit: 5}, says: "exit code 5: it broke"},
		"a rank's file gone": {run: twoRanks, damage: removing("logs/rank_1_metrics.json"),
			says: "no metrics of rank 1 of 2"},
		"settings gone": {run: twoRanks, damage: removing("configs/resolved.toml"), says: "read settings"},
		"settings broken": {run: twoRanks, damage: holding("configs/resolved.toml", "= ="),
			says: "resolved.toml"},
		"no metrics": {run: twoRanks, damage: holding("logs/rank_0_metrics.json", "[\n]\n"),
			says: "no step with records of all 2 ranks"},
		"metrics of a stranger": {run: twoRanks, damage: holding("logs/rank_0_metrics.json", "hello"),
			says: "read metrics"},
		"another's benchmark.json": {
			run: twoRanks, damage: holding("benchmark.json", `{"schema":1,"scenario":"equal","policy":"hybrid","model":"simple_cnn","batch_size":16,"seed":1,"ranks":2}`),
			says: "policy: got hybrid, want none"},
		"solo of too few ranks": {run: twoRanks, damage: holding("benchmark.json", `{"schema":1,"scenario":"equal","policy":"none","model":"simple_cnn","batch_size":16,"seed":1,"ranks":2,"solo":["solo-1"]}`),
			says: "got a list of 1 entries, want 2, one per rank"},
		"a later benchmark.json": {run: twoRanks, damage: holding("benchmark.json", `{"schema":2,"scenario":"equal"}`),
			says: "got schema 2"},
		"a broken result": {run: twoRanks, damage: holding("results/result.json", `{`), says: "result.json"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := c.run.write(t, root)
			if c.damage != nil {
				c.damage(t, dir)
			}
			all, err := Read(root)
			if err != nil || len(all.Runs) != 0 || len(all.Skipped) != 1 || all.Skipped[0].Dir != dir ||
				!strings.Contains(all.Skipped[0].Reason, c.says) {
				t.Errorf("got %d runs, skipped %+v, %v; want one skipped with %q", len(all.Runs), all.Skipped, err,
					c.says)
			}
		})
	}
}

func removing(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func holding(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, name), text) }
}

func TestDamagedLinesAreLeftOutAndNamed(t *testing.T) {
	root := t.TempDir()
	run := twoRanks
	run.decisions = `{"step":40,"share_of_oracle":0.9,"lost_seconds":{"noise":null,"data":0.5}}` +
		"\n{\"step\":50,\"share_\n" + `{"step":60,"share_of_oracle":null}` + "\n" + `{"policy":"none"}` + "\n"
	dir := run.write(t, root)
	path := filepath.Join(dir, "logs", runtime.FileName(1))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(string(text), `{"epoch":0,"iteration":50,`, `{"epoch":0,"itera`, 1))
	s := study(t, root)
	if len(s.Comparisons) != 1 {
		t.Fatalf("got %d comparisons, skipped %v", len(s.Comparisons), s.Skipped)
	}
	got := strings.Join(s.Damaged, "\n")
	for _, want := range []string{path + ": 1 damaged line ignored", balanceFile + ": 2 damaged lines",
		"1 steps are not used"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	p := s.Comparisons[0].Policies[0]
	if len(p.Runs[0].Steps) != 59 || len(p.Runs[0].Decisions) != 2 || p.Oracle.Value != 0.9 || p.Lost["data"] != 0.5 {
		t.Errorf("got %d steps, decisions %+v, oracle %v, lost %v", len(p.Runs[0].Steps), p.Runs[0].Decisions, p.Oracle,
			p.Lost)
	}
}

func TestRunsAreFoundAtAnyDepthButNotInHiddenFolders(t *testing.T) {
	root := t.TempDir()
	twoRanks.write(t, filepath.Join(root, "a", "b"))
	twoRanks.write(t, filepath.Join(root, "c"))
	twoRanks.write(t, filepath.Join(root, ".unfinished"))
	all, err := Read(root)
	if err != nil || len(all.Runs) != 2 || all.Runs[0].Name != "a__b__"+twoRanks.name() {
		t.Errorf("got %+v, %v, want two runs with names of their own", all.Runs, err)
	}
	if one, err := Read(all.Runs[0].Dir); err != nil || len(one.Runs) != 1 {
		t.Errorf("a run's own folder: got %d runs, %v", len(one.Runs), err)
	}
}

func TestRunWithoutBenchmarkFileIsDescribedByItsSettings(t *testing.T) {
	root := t.TempDir()
	run := twoRanks
	run.bare = true
	run.write(t, root)
	run.seed, run.settings = 2, "[other]\nx = 1\n"
	dir := run.write(t, root)
	path := filepath.Join(dir, "configs", "resolved.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(string(text), "fixed_shares = []", "fixed_shares = [8, 8]", 1))
	all, err := Read(root)
	if err != nil || len(all.Runs) != 2 || all.Runs[0].Scenario != "ranks-2" || all.Runs[0].Policy != "none" ||
		all.Runs[1].Policy != "fixed [8 8]" {
		t.Errorf("got %+v, %v", all, err)
	}
}

func TestRootThatCannotBeReadIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	for path, says := range map[string]string{
		file: "want the folder", filepath.Join(t.TempDir(), "none"): "no such file"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}
