package analysis

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// pair writes two runs that differ in their policy, and returns their folders.
func pair(t *testing.T) (none, hybrid string) {
	t.Helper()
	root := t.TempDir()
	speed := []float64{400, 200}
	decisions := `{"step":10,"shares":[48,48],"next":[64,32],"changed":true,"share_of_oracle":0.9,"step_seconds":0.24,"equal_step_seconds":0.24,"equal_step_seconds_low":0.24,"equal_step_seconds_high":0.24}
{"step":100,"shares":[64,32],"next":[64,32],"share_of_oracle":0.99,"step_seconds":0.16,"equal_step_seconds":0.24,"equal_step_seconds_low":0.2,"equal_step_seconds_high":0.28,"outcome":{"step":10,"predicted":1.5,"achieved":1.4,"achieved_low":1.3,"achieved_high":1.6}}
`
	none = fakeRun{policy: "none", scenario: "two", seed: 1, shares: []int64{48, 48}, speed: speed, steps: 100,
		bare: true}.write(t, root)
	hybrid = fakeRun{policy: "hybrid", scenario: "two", seed: 1, shares: []int64{64, 32}, speed: speed, steps: 100,
		bare: true, decisions: decisions}.write(t, root)
	return none, hybrid
}

// mlflowRun writes a run in the format of MLflow's file store.
func mlflowRun(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, text)
	}
	return dir
}

func trials(t *testing.T, paths ...string) (all []*Trial) {
	t.Helper()
	for _, p := range paths {
		trial, err := ReadTrial(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, trial)
	}
	return all
}

func within(a, b, relative float64) bool { return math.Abs(a-b) <= relative*math.Abs(b) }

func TestRunsSideBySide(t *testing.T) {
	none, hybrid := pair(t)
	s, err := CompareTrials(trials(t, none, hybrid))
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.Trials[0], s.Trials[1]
	// The slow rank computes 200 samples/s: 48 samples take 240 ms, 32 samples take 160 ms.
	for i, want := range []float64{96 / 0.24, 96 / 0.16} {
		if got := float64(s.Trials[i].Throughput); !within(got, want, 0.01) {
			t.Errorf("%s: got %g samples/s, want %g", s.Trials[i].Name, got, want)
		}
	}
	if !within(float64(a.TrainingTime), 24, 0.02) || !within(float64(a.RankHours), 2*24./3600, 0.02) ||
		!math.IsNaN(float64(a.Energy)) {
		t.Errorf("got %g s, %g rank-hours and %g kWh, want 24 s, two ranks for 24 s, and unknown energy",
			a.TrainingTime, a.RankHours, a.Energy)
	}
	if !within(float64(b.ShareOfOracle), (8*0.9+90*0.99)/98, 1e-6) || !math.IsNaN(float64(a.ShareOfOracle)) {
		t.Errorf("fraction of the oracle: got %g and %g", a.ShareOfOracle, b.ShareOfOracle)
	}
	if got, want := fmt.Sprint(b.Changes), "[{10 1.5 1.4 1.3 1.6}]"; got != want || len(a.Changes) != 0 {
		t.Errorf("changes of shares: got %s, want %s", got, want)
	}
	if len(s.Settings) != 1 || s.Settings[0].Key != "balance.policy" || *s.Settings[0].Values[0] != "none" ||
		*s.Settings[0].Values[1] != "hybrid" {
		t.Errorf("settings that differ: got %+v, want balance.policy alone", s.Settings)
	}
	loss := s.Curve(0, lossCurve)
	if loss == nil || len(loss.Points) != 100 {
		t.Fatalf("got curve %+v, want 100 points", loss)
	}
	for _, i := range []int{0, 49, 99} {
		p := loss.Points[i]
		if p.Step != int64(i+1) || !within(float64(p.Value), 2.3*math.Exp(-float64(p.Step)/50), 1e-4) ||
			!within(float64(p.Seconds), 0.24*float64(p.Step), 0.02) {
			t.Errorf("point %d: got %+v", i, p)
		}
	}
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(1.50x)", "balance.policy", "fraction of the oracle", "cost: rank-hours"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%swant %q", text.String(), want)
		}
	}
	if strings.Contains(text.String(), "energy") {
		t.Errorf("got a row for the energy, which is unknown:\n%s", text.String())
	}
}

// The figures of an unfinished run must cover its steps up to the newest one.
func TestAnUnfinishedRunIsCompared(t *testing.T) {
	none, _ := pair(t)
	killed := fakeRun{policy: "hybrid", scenario: "two", seed: 2, shares: []int64{96}, speed: []float64{400}, steps: 40,
		bare: true, unfinished: true}.write(t, t.TempDir())
	s, err := CompareTrials(trials(t, none, killed))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(s.Notes, "\n"), "The numbers of steps differ (100, 40)") {
		t.Errorf("got notes %q, want one on the numbers of steps", s.Notes)
	}
	if s.Trials[1].Steps != 40 || !strings.Contains(strings.Join(s.Notes, "\n"),
		"is not finished (crashed): its figures are those up to step 40") {
		t.Errorf("got %d steps and notes %q", s.Trials[1].Steps, s.Notes)
	}
}

// MLflow calls a killed run "running". The end of such a run must be the time of its newest point.
func TestARunThatMLflowCallsRunningHasTheTimeOfItsNewestPoint(t *testing.T) {
	none, _ := pair(t)
	killed := mlflowRun(t, "0123", map[string]string{"meta.yaml": "run_name: killed\nstatus: 1\n",
		"metrics/train/loss": "1790000000000 2.5 1\n1790000001000 2.0 100\n"})
	s, err := CompareTrials(trials(t, none, killed))
	if err != nil {
		t.Fatal(err)
	}
	want := "Run killed is running according to MLflow, where a killed run keeps this status: its newest point is of step 100, 2026-09-21 14:13:21 UTC."
	if !slices.Contains(s.Notes, want) {
		t.Errorf("got notes %q, want %q", s.Notes, want)
	}
}

// A comparison of runs with other data or another model must be possible, with a note.
func TestUnequalDataAndModelsAreNoted(t *testing.T) {
	run := func(name, model, data string) string {
		return mlflowRun(t, name, map[string]string{"meta.yaml": "run_name: " + name + "\nstatus: 3\n",
			"params/model.name": model, "params/data.dataset": data, "metrics/train/loss": "1 2.5 1\n"})
	}
	for _, c := range []struct {
		model, data string
		want        []string
	}{
		{"resnet50", "cifar10", nil},
		{"resnet18", "cifar10", []string{"The models differ (resnet50, resnet18)"}},
		{"resnet50", "cifar100", []string{"The data sets differ (cifar10, cifar100)"}},
		{"resnet18", "cifar100",
			[]string{"The data sets differ (cifar10, cifar100)", "The models differ (resnet50, resnet18)"}},
	} {
		s, err := CompareTrials(trials(t, run("a", "resnet50", "cifar10"), run("b", c.model, c.data)))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, note := range s.Notes {
			start, _, _ := strings.Cut(note, ":")
			got = append(got, start)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s on %s: got notes %q, want %q", c.model, c.data, got, c.want)
		}
	}
}

// Settings with the addresses of receivers and servers may contain secrets, and have no effect on results. A comparison
// must omit them.
func TestAComparisonShowsNoReceivers(t *testing.T) {
	root := t.TempDir()
	var paths []string
	for i := range 2 {
		paths = append(paths, fakeRun{policy: "none", scenario: "one", seed: 1, shares: []int64{8},
			speed: []float64{100}, steps: 10, bare: true,
			settings: fmt.Sprintf("[notify]\nwebhook = \"https://host/canary%d\"\n", i)}.write(t,
			filepath.Join(root, fmt.Sprint(i))))
	}
	s, err := CompareTrials(trials(t, paths...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.JSON()
	if err != nil || strings.Contains(string(text), "canary") || len(s.Settings) != 0 {
		t.Errorf("got %v and %s, want no setting that differs", err, text)
	}
	if s.Trials[0].Name == s.Trials[1].Name {
		t.Errorf("both runs have the name %q", s.Trials[0].Name)
	}
}

func TestARunOfMLflowIsCompared(t *testing.T) {
	own, hybrid := pair(t)
	dir := mlflowRun(t, "0123", map[string]string{
		"meta.yaml":                         "run_name: \"a b\"\nstatus: 3\n",
		"params/balance.policy":             "proportional",
		"params/optimizer.lr":               "5e-2",
		"tags/hetero_train.ranks":           "2",
		"metrics/train/loss":                "1000 2.5 1\n2000 2.0 10\n2500 9.0 20\n3000 1.5 20\ngarbage\n4000 nan 30\n",
		"metrics/progress/training_seconds": "1000 0.5 1\n2000 1.4 10\n3000 3.4 20\n",
		"metrics/speed/images_per_second":   "1000 100 1\n2000 200 10\n3000 300 20\n",
		"metrics/balance/oracle_ratio":      "1000 0.9 10\n1100 0.9 20\n1200 0.9 90\n2000 0.99 100\n",
	})
	all := trials(t, own, dir)
	m := all[1]
	// The decisions in the files of the run state 0.9 for 10 steps, and 0.99 for 90 steps. The figure from these files
	// excludes the first two steps. The figure from MLflow's points includes them.
	if got := trials(t, own, hybrid)[1].ShareOfOracle; !within(float64(m.ShareOfOracle), 0.981, 1e-9) ||
		!within(float64(got), (8*0.9+90*0.99)/98, 1e-6) {
		t.Errorf("got the fraction of the oracle %g, and %g on disk, want 0.981 and 0.9827", m.ShareOfOracle, got)
	}
	if m.Name != "a b" || m.Status != "finished" || m.Unit != "img" || m.Ranks != 2 || m.TrainLoss != 1.5 ||
		len(m.Damaged) != 1 {
		t.Errorf("got %+v", m)
	}
	// 1 step takes 0.5 s, 9 steps take 0.1 s each, and 10 steps take 0.2 s each.
	const seconds = 0.5 + 0.9 + 2
	if want := (0.5*100 + 0.9*200 + 2*300) / seconds; !within(float64(m.Throughput), want, 1e-9) ||
		!within(float64(m.TrainingTime), seconds, 1e-9) {
		t.Errorf("got %g img/s and %g s, want %g and %g", m.Throughput, m.TrainingTime, want, seconds)
	}
	loss := m.curve(lossCurve)
	if got, want := fmt.Sprint(loss.Points), "[{1 0.5 2.5} {10 1.4 2} {20 3.4 1.5}]"; got != want {
		t.Errorf("got %s, want %s: the last point of a step, without values that are not finite", got, want)
	}
	s, err := CompareTrials(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.Settings {
		if d.Key == "optimizer.lr" {
			t.Errorf("optimizer.lr: got a difference between 0.05 and 5e-2")
		}
	}
	var decoded map[string]any
	text, err := s.JSON()
	if err := errors.Join(err, json.Unmarshal(text, &decoded)); err != nil || len(decoded["runs"].([]any)) != 2 {
		t.Errorf("got %v, %v", decoded, err)
	}
}

// wantSpeed checks the speed of a run of MLflow that trained this number of steps and images.
func wantSpeed(t *testing.T, m *Trial, seconds, steps, images float64) {
	t.Helper()
	if !within(float64(m.TrainingTime), seconds, 1e-9) || !within(float64(m.StepTime), seconds/steps, 1e-9) ||
		!within(float64(m.Throughput), images/seconds, 1e-9) {
		t.Errorf("got %g s, %g s per step and %g img/s, want %g, %g and %g", m.TrainingTime, m.StepTime, m.Throughput,
			seconds, seconds/steps, images/seconds)
	}
}

// The run was resumed after step 15, so its next point covers fewer steps than others. Means of this point would be
// wrong; totals remain exact.
func TestTotalsOfMLflowGoBeforeMeans(t *testing.T) {
	m := trials(t, mlflowRun(t, "0123", map[string]string{
		"meta.yaml":                       "status: 3\n",
		"metrics/train/loss":              "1000 2.5 1\n2000 2.0 10\n2500 1.9 20\n",
		"metrics/eval/loss":               "1500 2.2 15\n",
		"metrics/time_seconds/step":       "1000 0.5 1\n2000 0.1 10\n3000 0.4 20\n",
		"metrics/speed/images_per_second": "1000 20 1\n2000 100 10\n3000 25 20\n",
		// 5 steps take 0.1 s each, and 5 steps take 0.4 s each.
		"metrics/progress/training_seconds": "1000 0.5 1\n2000 1.4 10\n3000 3.9 20\n",
		"metrics/progress/images":           "1000 10 1\n2000 100 10\n3000 200 20\n",
	}))[0]
	wantSpeed(t, m, 3.9, 20, 200)
	if got := m.curve(evalPrefix + "loss").Points[0].Seconds; !within(float64(got), (1.4+3.9)/2, 1e-9) {
		t.Errorf("evaluation after step 15: got %g s, want the middle between the points", got)
	}
	// This run started from step 1000 of another run.
	m = trials(t, mlflowRun(t, "4567", map[string]string{
		"meta.yaml":                         "status: 3\n",
		"metrics/train/loss":                "1000 2.5 1010\n2000 2.0 1020\n",
		"metrics/time_seconds/step":         "1000 0.5 1010\n2000 0.1 1020\n",
		"metrics/speed/images_per_second":   "1000 20 1010\n2000 100 1020\n",
		"metrics/progress/training_seconds": "1000 5 1010\n2000 6 1020\n",
		"metrics/progress/images":           "1000 100 1010\n2000 200 1020\n",
		"metrics/progress/steps":            "1000 10 1010\n2000 20 1020\n",
	}))[0]
	wantSpeed(t, m, 6, 20, 200)
}

// The first point after a resume is slower than the steps before it, which have no points.
func TestStepsOfMLflowBeforeItsFirstPointCount(t *testing.T) {
	m := trials(t, mlflowRun(t, "0123", map[string]string{
		"meta.yaml":                         "status: 3\n",
		"metrics/train/loss":                "1000 2.5 1010\n2000 2.0 1020\n",
		"metrics/time_seconds/step":         "1000 1 1010\n2000 0.1 1020\n",
		"metrics/speed/images_per_second":   "1000 10 1010\n2000 100 1020\n",
		"metrics/progress/training_seconds": "1000 110 1010\n2000 111 1020\n",
		"metrics/progress/images":           "1000 10100 1010\n2000 10200 1020\n",
		"metrics/progress/steps":            "1000 1010 1010\n2000 1020 1020\n",
	}))[0]
	wantSpeed(t, m, 111, 1020, 10200)
}

// sweepOf returns n runs of MLflow that differ in the learning rate, and in one further setting.
func sweepOf(t *testing.T, n int) *SideBySide {
	t.Helper()
	var paths []string
	for i := range n {
		paths = append(paths, mlflowRun(t, fmt.Sprintf("run%02d", i),
			map[string]string{"meta.yaml": "status: 3\n", "params/optimizer.lr": fmt.Sprintf("0.%02d", i+1),
				"params/model.name": "simple_cnn", "params/train.epochs": fmt.Sprint(1 + i%2),
				"metrics/loss": fmt.Sprintf("1 %d 3\n", i+1)}))
	}
	s, err := CompareTrials(trials(t, paths...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestManyRunsHaveARowEach(t *testing.T) {
	s := sweepOf(t, 40)
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), s.Report(nil)} {
		for _, want := range []string{"optimizer.lr", "run00", "run39", "0.39", "training loss", "Equal in all runs: ",
			"state finished", "model simple_cnn"} {
			if !strings.Contains(out, want) {
				t.Errorf("got\n%s\nwant %q", out, want)
			}
		}
		head, _, _ := strings.Cut(out, "run00")
		if strings.Contains(head, "state") {
			t.Errorf("got a column of values that are equal:\n%s", head)
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines < 42 || lines > 46 {
		t.Errorf("got %d lines, want one for each of 40 runs:\n%s", lines, text.String())
	}
}

func TestLabelsHaveTheSettingsThatDiffer(t *testing.T) {
	s := sweepOf(t, 2)
	if got := s.Label(1); got != "lr=0.02, epochs=2" {
		t.Errorf("got %q, want the settings without the name of the run", got)
	}
	value := func(v string) *string { return &v }
	s = &SideBySide{Trials: []*Trial{{Name: "a"}, {Name: "b"}}, Settings: []Difference{
		{"data.batch_size", []*string{value("8"), nil}}, {"ema.decay", []*string{value("0"), nil}},
		{"model.name", []*string{value("x"), nil}},
		{"optimizer.name", []*string{value("sgd"), nil}},
	}}
	if got := s.Label(0); got != "batch_size=8, decay=0, model.name=x, …" {
		t.Errorf("got %q, want three settings, and the table of names that two tables have", got)
	}
	if got := s.Label(1); got != "b" {
		t.Errorf("a run without settings: got %q", got)
	}
	s.Trials, s.Settings[0].Values = append(s.Trials, &Trial{Name: "c"}), append(s.Settings[0].Values, value("8"))
	for i := range s.Settings[1:] {
		s.Settings[i+1].Values = append(s.Settings[i+1].Values, s.Settings[i+1].Values[0])
	}
	if got := s.Label(2); got != "batch_size=8, decay=0, model.name=x, … (c)" {
		t.Errorf("two runs with equal values: got %q, want the name, too", got)
	}
	s = &SideBySide{Trials: []*Trial{{Name: "a"}, {Name: "b"}}, Settings: []Difference{
		{"balance.fixed_shares", []*string{value(""), value("30,18")}},
		{"balance.policy", []*string{value("none"), value("hybrid")}}}}
	if a, b := s.Label(0), s.Label(1); a != "policy=none" || b != "fixed_shares=30,18, policy=hybrid" {
		t.Errorf("a setting that is empty: got the labels %q and %q", a, b)
	}
}

// Names and parameters come from files of other programs. They must not send control sequences to the terminal, or
// break tables.
func TestTextsOfFilesAreShownAsText(t *testing.T) {
	run := func(name, value string) string {
		return mlflowRun(t, name, map[string]string{"meta.yaml": "run_name: \"" + name + `\x1b[2J|` + "\"\nstatus: 3\n",
			"params/layers": value, "metrics/loss": "1 2 3\n"})
	}
	s, err := CompareTrials(trials(t, run("a", "1\n\x1b[31m\t2"), run("b", strings.Repeat("x", 5000))))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), s.Report(nil)} {
		if strings.ContainsAny(out, "\x1b\t") || strings.Contains(out, strings.Repeat("x", 100)) ||
			!strings.Contains(out, "1  [31m 2") {
			t.Errorf("got %q", out)
		}
	}
}

func TestRunsThatCannotBeCompared(t *testing.T) {
	own, other := pair(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	images := mlflowRun(t, "images", map[string]string{"meta.yaml": "status: 3\n", "metrics/loss": "1 2 3\n",
		"metrics/speed/images_per_second": "1 2 3\n"})
	tokens := mlflowRun(t, "tokens", map[string]string{"meta.yaml": "status: 3\n", "metrics/loss": "1 2 3\n",
		"metrics/speed/tokens_per_second": "1 2 3\n"})
	evaluated := mlflowRun(t, "evaluated",
		map[string]string{"meta.yaml": "status: 3\n", "metrics/val_acc": "1 0.5 3\n"})
	for _, c := range []struct {
		paths []string
		says  string
	}{
		{[]string{own}, "got 1, want at least 2"},
		{[]string{own, other, own}, "are the same run"},
		{[]string{own, link}, "are the same run"},
		{[]string{images, tokens}, "trains on images and"},
		{[]string{own, evaluated}, "no value is known of all runs"},
	} {
		if _, err := CompareTrials(trials(t, c.paths...)); !errors.Is(err, ErrNotComparable) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: got %v, want %q", c.paths, err, c.says)
		}
	}
	if _, err := CompareTrials(trials(t, own, other)); err != nil {
		t.Error(err)
	}
}

func TestFoldersThatAreNoRun(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	writeFile(t, file, "")
	silent := filepath.Join(t.TempDir(), "silent")
	if err := os.MkdirAll(filepath.Join(silent, "configs"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(silent, resolvedFile), "[profile]\nenabled = false\n")
	bare := mlflowRun(t, "bare", map[string]string{"meta.yaml": "status: 1\n", "metrics/memory": "1 2 3\n"})
	for path, says := range map[string]string{
		filepath.Join(empty, "gone"): "there is no folder",
		file:                         "is a file",
		empty:                        "is not the folder of a run",
		silent:                       "profile.enabled is false",
		bare:                         "no metric that can be compared",
		"http://host:5000/":          "want the address of a run's page in MLflow",
	} {
		if _, err := ReadTrial(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

// Resolving a path needs several system calls, so each path must be resolved only once.
func TestTheWorkToFindARunTwiceGrowsWithTheRuns(t *testing.T) {
	work := func(n int) float64 {
		var all []*Trial
		for i := range n {
			all = append(all, &Trial{Path: fmt.Sprint("runs/", i), Curves: []Curve{{Key: lossCurve}}})
		}
		return testing.AllocsPerRun(1, func() {
			if err := sameMeasure(all); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := work(100), work(400); many > 6*few {
		t.Errorf("got %g allocations for 100 runs and %g for 400, want about 4 times as many", few, many)
	}
}

// The names of a sweep's runs often differ only in their last characters.
func TestLongNamesKeepTheirEnds(t *testing.T) {
	long := strings.Repeat("sweep-", 9)
	if got, want := plain(long+"17"), "sweep-sweep-sweep-sweep-sweep-s…p-sweep-sweep-17"; got != want ||
		utf8.RuneCountInString(got) != mostCell {
		t.Errorf("got %q, want %q, %d characters", got, want, mostCell)
	}
	a, b := strings.Repeat("x", 35)+"1"+strings.Repeat("y", 24), strings.Repeat("x", 35)+"2"+strings.Repeat("y", 24)
	dataset := func(t *Trial) string { return t.Dataset }
	if differ, _ := valuesOf([]*Trial{{Dataset: a}, {Dataset: b}}, dataset); !differ {
		t.Error("two names that differ in the middle count as equal")
	}
}

func TestUnknownGainsHaveAReason(t *testing.T) {
	const why = "the balancer made no decision on measured times"
	trials := []*Trial{{Name: "a", GainUnknown: why}, {Name: "b"}, {Name: "c", GainUnknown: "rank 1 is new"},
		{Name: "d", GainUnknown: why}}
	want := []string{"The gain over equal shares is unknown for a, d: " + why + ".",
		"The gain over equal shares is unknown for c: rank 1 is new."}
	if got := gainsUnknown(trials); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 2 {
		trials = append(trials, &Trial{Name: "e", GainUnknown: why})
	}
	if got := gainsUnknown(trials)[0]; !strings.Contains(got, "for 4 runs: ") {
		t.Errorf("got %q, want the number of runs", got)
	}
}
