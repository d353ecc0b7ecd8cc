package analysis

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/golden"
)

func TestKnownSpeedsGiveKnownFigures(t *testing.T) {
	root := t.TempDir()
	fourUnequal(t, root, 0, 1, 2)
	s := study(t, root)
	if len(s.Comparisons) != 1 || len(s.Skipped)+len(s.Damaged) != 0 {
		t.Fatalf("got %d comparisons, skipped %v, damaged %v", len(s.Comparisons), s.Skipped, s.Damaged)
	}
	c := s.Comparisons[0]
	for i, want := range []struct {
		policy                                              string
		throughput, efficiency, speedup, imbalance, waiting float64
	}{
		{"none", 128 / 0.32, 0.5, 1, 0.75, 1 - (0.08+0.16+0.32+0.32)/(4*0.32)},
		{"proportional", 128 / 0.18, 128 / 0.18 / 800, 0.32 / 0.18, 1 - 0.14/0.18, 1 - (0.14+0.18+0.18+0.18)/(4*0.18)},
		{"dynamic", 128 / 0.17, 128 / 0.17 / 800, 0.32 / 0.17, 1 - 0.15/0.17, 1 - (0.15+0.17+0.17+0.17)/(4*0.17)},
		{"hybrid", 800, 1, 2, 0, 0},
	} {
		p := c.Policies[i]
		got := []float64{p.Throughput.Value, p.Efficiency.Value, p.Speedup.Value, p.Imbalance.Value, p.Waiting.Value}
		for j, v := range []float64{want.throughput, want.efficiency, want.speedup, want.imbalance, want.waiting} {
			if math.Abs(got[j]-v) > 1e-4*math.Max(v, 1) { // timestamps have a resolution of one microsecond
				t.Errorf("%s: value %d: got %g, want %g", want.policy, j, got[j], v)
			}
		}
		if p.Policy != want.policy || len(p.Runs) != 2 || p.Speedup.High-p.Speedup.Low > 1e-3 {
			t.Errorf("got %s with %d runs and speed-up %+v", p.Policy, len(p.Runs), p.Speedup)
		}
	}
	hybrid := c.Policies[3]
	if !same(hybrid.Oracle.Value, 0.99) || !same(hybrid.Lost["noise"], 0.002) || c.Policies[0].Oracle.Known() {
		t.Errorf("oracle: got %+v and %+v, lost %v", hybrid.Oracle, c.Policies[0].Oracle, hybrid.Lost)
	}
	// All runs have equal losses at equal steps. A run at twice the speed therefore reaches a loss in half the time.
	if got := average(hybrid.SecondsTo) / average(c.Policies[0].SecondsTo); math.Abs(got-0.5) > 1e-3 ||
		c.LossSpread != 0 || hybrid.StepsTo[0] != 100 {
		t.Errorf("time to loss: got %g of the baseline's, spread %g, step %d", got, c.LossSpread, hybrid.StepsTo[0])
	}
}

func TestRunsOfUnlikeSettingsAreNotCompared(t *testing.T) {
	base := fakeRun{policy: "none", scenario: "equal", seed: 1, shares: []int64{8, 8}, speed: []float64{100, 100},
		steps: 60}
	for name, c := range map[string]struct {
		change      func(*fakeRun)
		comparisons int
	}{
		"policy":        {func(f *fakeRun) { f.policy = "hybrid" }, 1},
		"seed":          {func(f *fakeRun) { f.seed = 2 }, 1},
		"shares":        {func(f *fakeRun) { f.policy, f.shares = "dynamic", []int64{10, 6} }, 1},
		"batch size":    {func(f *fakeRun) { f.policy, f.shares = "hybrid", []int64{8, 9} }, 2},
		"ranks":         {func(f *fakeRun) { f.policy, f.bare = "hybrid", true }, 2},
		"scenario":      {func(f *fakeRun) { f.scenario = "laptops" }, 2},
		"any other key": {func(f *fakeRun) { f.policy, f.settings = "hybrid", "image_size = 64\n" }, 2},
		"steps":         {func(f *fakeRun) { f.policy, f.steps = "hybrid", 61 }, 2},
	} {
		root, other := t.TempDir(), base
		c.change(&other)
		base.write(t, root)
		other.write(t, root)
		s := study(t, root)
		if len(s.Comparisons) != c.comparisons {
			t.Errorf("%s: got %d comparisons, want %d", name, len(s.Comparisons), c.comparisons)
		}
		ids := map[string]bool{}
		for _, comparison := range s.Comparisons {
			ids[comparison.ID] = true
		}
		if len(ids) != c.comparisons {
			t.Errorf("%s: names are not unique: %v", name, ids)
		}
	}
}

func TestComparisonsOfOneNameSayInWhatTheyDiffer(t *testing.T) {
	root := t.TempDir()
	run := twoRanks
	run.write(t, root)
	run.settings, run.seed = "image_size = 64\n", 2
	run.write(t, root)
	s := study(t, root)
	if len(s.Comparisons) != 2 || !strings.Contains(fmt.Sprint(s.Comparisons[0].Notes, s.Comparisons[1].Notes),
		"differ in: data.image_size = 64") {
		t.Errorf("got %d comparisons, notes %q and %q", len(s.Comparisons), s.Comparisons[0].Notes,
			s.Comparisons[1].Notes)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	root := t.TempDir()
	run := twoRanks
	run.policy, run.solo = "hybrid", []string{"solo-1", "solo-1"}
	run.write(t, root)
	// The reference run has another batch size.
	solo := fakeRun{policy: "none", scenario: "solo-1", seed: 1, shares: []int64{32}, speed: []float64{100}, steps: 60}
	solo.write(t, root)
	short := twoRanks
	short.seed, short.steps = 7, 40
	dir := short.write(t, root)
	s := study(t, root)
	notes := strings.Join(s.Comparisons[0].Notes, "\n")
	for _, want := range []string{"no run of solo-1 with these settings", `no run of policy "none"`, "only one run"} {
		if !strings.Contains(notes, want) {
			t.Errorf("got notes %q, want %q", notes, want)
		}
	}
	if p := s.Comparisons[0].Policies[0]; p.Efficiency.Known() || p.Speedup.Known() {
		t.Errorf("got efficiency %+v and speed-up %+v, want them unknown", p.Efficiency, p.Speedup)
	}
	if len(s.Skipped) != 1 || s.Skipped[0].Dir != dir ||
		!strings.Contains(s.Skipped[0].Reason, "10 steps after the warm-up of 30, want at least 20") {
		t.Errorf("got %+v", s.Skipped)
	}
}

func TestExpectationsAreJudgedByTheInterval(t *testing.T) {
	more, less := expectation{ratio: 1.33}, expectation{ratio: 0.5, below: true}
	for _, c := range []struct {
		e    expectation
		got  Estimate
		want string
	}{
		{more, Estimate{1.5, 1.4, 1.6}, "reached"},
		{more, Estimate{1.4, 1.3, 1.5}, "open"},
		{more, Estimate{1.2, 1.1, 1.3}, "not reached"},
		{more, noEstimate, "unknown"},
		{less, Estimate{0.4, 0.3, 0.49}, "reached"},
		{less, Estimate{0.4, 0.3, 0.51}, "open"},
		{less, Estimate{0.6, 0.51, 0.7}, "not reached"},
	} {
		if got := c.e.verdict(c.got); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v of %+v: got %q, want %q", c.e, c.got, got, c.want)
		}
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, o := range []Options{{Replicates: 99, Confidence: 0.95}, {Replicates: 2_000_000, Confidence: 0.95},
		{Replicates: 200}, {Replicates: 200, Confidence: 1}, {Replicates: 200, Confidence: math.NaN()}} {
		if _, err := Compare(Collection{}, o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

func TestReportTablesAndFilesAreAsTheyWere(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // with relative paths, the report does not contain the name of a temporary folder
	golden := func(name, got string) {
		t.Helper()
		golden.Check(t, filepath.Join(testdata, name), got)
	}
	fourUnequal(t, "runs", 0.02, 1, 2)
	s := study(t, "runs")
	var table bytes.Buffer
	if err := s.Print(&table); err != nil {
		t.Fatal(err)
	}
	summary, err := s.SummaryCSV()
	if err != nil {
		t.Fatal(err)
	}
	steps, err := s.Comparisons[0].Policies[1].Runs[0].StepsCSV()
	if err != nil {
		t.Fatal(err)
	}
	head := strings.SplitAfterN(steps, "\n", 5)
	figures := map[string][]Figure{
		s.Comparisons[0].ID: {{Title: "Throughput", Caption: "How much.", Path: "x/throughput.png"}}}
	golden("table.txt", table.String())
	golden("summary.csv", summary)
	golden("steps.csv", strings.Join(head[:4], ""))
	golden("report.md", s.Report(figures, nil))
	if table := s.FiveFigures(); !strings.Contains(table, "| throughput | ") || !strings.Contains(table, ", 1.33x |") ||
		!strings.Contains(table, "the largest possible ratio of throughput is ") {
		t.Errorf("got %q, want the five figures of each policy with the expected ratios", table)
	}
	if again := study(t, "runs"); again.Report(figures, nil) != s.Report(figures, nil) {
		t.Error("the same runs gave another report")
	}
}
