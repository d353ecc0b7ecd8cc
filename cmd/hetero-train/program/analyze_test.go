package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/mlflow/mlflowtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

func TestAnalyzeSaysWhyThereIsNothingToCompare(t *testing.T) {
	empty, unfinished := t.TempDir(), t.TempDir()
	run := filepath.Join(unfinished, "killed", "configs")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(run, "resolved.toml")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--input-dir", empty}, "no runs to compare in " + empty + ": the folder contains no finished run"},
		{[]string{"--input-dir", empty}, "hetero-train train makes runs"},
		{[]string{"--input-dir", unfinished},
			"1 folders with runs cannot be used (1: not finished: it has no results/result.json)"},
		{[]string{"--input-dir", filepath.Join(empty, "none")}, "there is no folder"},
		{[]string{"--input-dir", file}, "is a file, want the folder that holds the runs"},
		{[]string{"--inputdir", empty}, "unknown flag: --inputdir"},
		{[]string{"now"},
			"--output-dir has no effect if runs are given as arguments; it applies to comparisons of policies only"},
		{[]string{"--set", "train.epochs=3"}, "analyze reads finished runs"},
		{[]string{"--confidence", "95"}, "confidence: got 95, want a number above 0 and below 1"},
		{[]string{"--replicates", "5"}, "got 5, want 100 to 1000000"},
		{[]string{"--warmup-steps", "-2"}, "--warmup-steps: got -2, want -1 or more"},
	} {
		output := filepath.Join(t.TempDir(), "analysis")
		o := execute(append([]string{"analyze", "--output-dir", output}, c.args...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("%v: got exit code %d, %q and %q, want 2 and %q", c.args, o.code, o.stdout, o.stderr, c.says)
		}
		if parts.Exists(output) {
			t.Errorf("%v: the output folder was made", c.args)
		}
	}
}

func TestAnalyzeOfARunRefusesWhatHasNoEffect(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{filepath.Join(dir, "none")}, "there is no folder " + filepath.Join(dir, "none")},
		{[]string{dir, "--confidence", "2"}, "confidence: got 2, want a number above 0 and below 1"},
		{[]string{dir, "--confidence", "0.9"}, "--confidence has no effect if runs are given as arguments"},
		{[]string{dir, "--warmup-steps", "-7"}, "--warmup-steps: got -7, want -1 or more"},
		{[]string{dir, "--seed", "3"}, "--seed has no effect if runs are given as arguments"},
	} {
		if o := execute(append([]string{"analyze"}, c.args...)); o.code != exit.Usage ||
			!strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
	// A missing folder replaces a read-only one here, because root can write to read-only folders.
	err := observe.WriteSummary(filepath.Join(dir, "none"), new(analysis.Summary))
	if err == nil || strings.Contains(err.Error(), "remove") {
		t.Errorf("got %v, want only why it cannot be written", err)
	}
}

// Command analyze must read the files that training writes.
func TestAnalyzeComparesRunsOfTheProgram(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	root := t.TempDir()
	runs, output := filepath.Join(root, "runs"), filepath.Join(root, "analysis")
	for _, policy := range []string{"none", "hybrid"} {
		if out, err := p.command(runs, "experiment.name="+policy, "balance.policy="+policy, "train.steps=60",
			"checkpoint.interval_steps=0").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// Command analyze must replace its files instead of overwriting them. A reader with an open file can then read the
	// old content to its end.
	former := []string{"report.md", "summary.csv"}
	if err := os.Mkdir(output, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range former {
		if err := os.WriteFile(filepath.Join(output, name), []byte("former"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(output, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	o := execute([]string{"analyze", "--input-dir", runs, "--output-dir", output})
	for _, name := range former {
		if got := string(clitest.ReadFile(t, filepath.Join(root, name))); got != "former" {
			t.Errorf("the former %s: got %q", name, got)
		}
	}
	if o.code != exit.Done ||
		!strings.Contains(o.stdout, "simple_cnn on synthetic_image, scenario ranks-1, ranks 1, global batch 8") ||
		!strings.Contains(o.stdout, "hybrid") {
		t.Fatalf("got exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
	report := string(clitest.ReadFile(t, filepath.Join(output, "report.md")))
	for line := range strings.Lines(report) { // all figures must be in the report
		_, rest, ok := strings.Cut(line, "](")
		name, _, _ := strings.Cut(rest, ")")
		if !ok || !strings.HasSuffix(name, ".png") {
			continue
		}
		file, err := os.Open(filepath.Join(output, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := png.Decode(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		file.Close()
	}
	if !strings.Contains(report, "throughput.png") ||
		!strings.Contains(string(clitest.ReadFile(t, filepath.Join(output, "summary.csv"))), ",hybrid,1,42,") {
		t.Errorf("report:\n%s", report)
	}
	blocked := filepath.Join(output, "report.md", "analysis") // a path below a regular file cannot be created
	if o := execute([]string{"analyze", "--input-dir", runs, "--output-dir", blocked}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "report.md") {
		t.Errorf("output that cannot be written: got exit code %d and %q", o.code, o.stderr)
	}
}

// Command analyze --compare must read the files of training runs, and the files of a run that training stores in a
// folder of MLflow.
func TestAnalyzeComparesRunsSideBySide(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	root := t.TempDir()
	store, output := filepath.Join(root, "mlruns"), filepath.Join(root, "comparison")
	for name, rate := range map[string]string{"slow": "0.001", "fast": "0.01"} {
		if out, err := p.command(root, "experiment.name="+name, "optimizer.lr="+rate, "train.steps=60",
			"tracking.mlflow="+store, "tracking.interval=5").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	slow, fast := filepath.Join(root, "slow"), filepath.Join(root, "fast")
	sent, err := filepath.Glob(filepath.Join(store, "*", "*", "meta.yaml"))
	if err != nil || len(sent) != 2 {
		t.Fatalf("got runs of MLflow %q, %v, want 2", sent, err)
	}
	args := []string{"analyze", "--compare", slow, fast, filepath.Dir(sent[0]), filepath.Dir(sent[1]), "--output-dir",
		output}
	o := execute(args)
	if o.code != exit.Done || !strings.Contains(o.stdout, "written: "+filepath.Join(output, "report.md")) {
		t.Fatalf("got exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
	for _, want := range []string{"slow (MLflow)", "fast (MLflow)", "throughput", "evaluation loss", "evaluation top-1",
		"cost: rank-hours", "optimizer.lr"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("got\n%swant %q", o.stdout, want)
		}
	}
	_, differ, _ := strings.Cut(o.stdout, "setting that differs")
	if strings.Count(differ, "\n") != 3 { // the rest of the heading, optimizer.lr, and "written"
		t.Errorf("got settings that differ\n%s\nwant optimizer.lr alone", differ)
	}
	for _, name := range []string{"loss_by_step.png", "loss_by_time.svg", "throughput_by_step.png",
		"eval_loss_by_step.png", "comparison.json"} {
		if !parts.Exists(filepath.Join(output, name)) {
			t.Errorf("%s is missing", name)
		}
	}
	o = execute(append(args, "--json"))
	var s struct {
		Runs []struct {
			Name   string
			Source string
			Steps  int64
			Loss   float64 `json:"final_train_loss"`
			Rate   float64 `json:"throughput_per_sec"`
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &s); err != nil || o.code != exit.Done ||
		strings.Count(o.stdout, "\n") != 1 {
		t.Fatalf("got exit code %d, %v and %q, want one line of JSON", o.code, err, o.stdout)
	}
	byName := map[string]int{}
	for i, r := range s.Runs {
		byName[r.Name] = i
		if r.Steps != 60 || r.Rate <= 0 {
			t.Errorf("got %+v, want 60 steps and a throughput", r)
		}
	}
	for _, name := range []string{"slow", "fast"} {
		own, sent := s.Runs[byName[name]], s.Runs[byName[name+" (MLflow)"]]
		if want := resultOf(t, filepath.Join(root, name)).loss(t); math.Abs(own.Loss-want) > 1e-6*want ||
			math.Abs(sent.Loss-want) > 1e-6*want {
			t.Errorf("%s: got losses %g and %g, the result has %g", name, own.Loss, sent.Loss, want)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{slow}, "got 1 run, want the names or folders of at least 2 runs"},
		{nil, "got 0 runs"},
		{[]string{slow, slow}, "are the same run"},
		{[]string{slow, root}, "is not the folder of a run"},
		{[]string{slow, filepath.Join(root, "none")}, "there is no folder"},
		{[]string{slow, fast, "--confidence", "0.9"}, "--confidence has no effect"},
	} {
		if o := execute(append([]string{"analyze", "--compare"}, c.args...)); o.code != exit.Usage ||
			!strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("%q: got exit code %d, %q and %q, want 2 and %q", c.args, o.code, o.stdout, o.stderr, c.says)
		}
	}
	if o := execute([]string{"analyze", "--compare", slow, "http://" + porttest.Refusing(t) +
		"#resnet/fast"}); o.code != exit.Communication || !strings.Contains(o.stderr, "from MLflow") {
		t.Errorf("a server that is down: got exit code %d and %q, want 5", o.code, o.stderr)
	}
	if o := execute([]string{"analyze", slow, "--json"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "--json needs --compare") {
		t.Errorf("--json without --compare: got exit code %d and %q", o.code, o.stderr)
	}
	records := filepath.Join(fast, "logs", runtime.FileName(0))
	text, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(records, bytes.Replace(text, []byte("\n"), []byte("\ngarbage\n"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"analyze", "--compare", slow, fast, "--output-dir", output}); o.code != exit.Done ||
		!strings.Contains(o.stderr, "warning: "+fast+": "+runtime.FileName(0)+": 1 damaged line ignored") {
		t.Errorf("a damaged line: got exit code %d and %q, want a warning with the name of the run", o.code, o.stderr)
	}
	blocked := filepath.Join(output, "report.md", "x") // a path below a regular file cannot be created
	if o := execute([]string{"analyze", "--compare", slow, fast, "--output-dir", blocked}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "report.md") {
		t.Errorf("output that cannot be written: got exit code %d and %q", o.code, o.stderr)
	}
}

// Command analyze --compare must read the records that training sends to a real MLflow server. In `make test`, package
// mlflow tests the client with a real server, and package analysis tests the comparison with a fake one.
func TestAnalyzeReadsAnMLflowServer(t *testing.T) {
	needtest.Large.Need(t, "starts an MLflow server")
	t.Parallel()
	tool := mlflowtest.Program(t)
	p, root := buildProgram(t), t.TempDir()
	port := porttest.Free(t)
	t.Cleanup(mlflowtest.Start(t, tool, root, port))
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	const name = "it's one"
	var paths []string
	for _, rate := range []string{"0.001", "0.01"} {
		run := "rate-" + rate[2:]
		if out, err := p.command(root, "experiment.name="+run, "optimizer.lr="+rate, "train.steps=60",
			"tracking.mlflow="+address, "tracking.experiment="+name, "tracking.interval=5").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if o := execute([]string{"tracking", "sync", filepath.Join(root, run)}); o.code != exit.Done {
			// The run may end before the server has all records.
			t.Fatalf("got exit code %d, %s", o.code, o.stderr)
		}
		paths = append(paths, filepath.Join(root, run), address+"#"+name+"/"+run)
	}
	o := execute(append([]string{"analyze", "--compare", "--json", "--output-dir", filepath.Join(root, "out")},
		paths...))
	var s struct {
		Runs []struct {
			Name, Path, Status, Model string
			Steps                     int64
			Loss                      float64 `json:"final_train_loss"`
			Rate                      float64 `json:"throughput_per_sec"`
		}
		Settings []struct{ Key string } `json:"settings_that_differ"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &s); err != nil || o.code != exit.Done || len(s.Runs) != 4 {
		t.Fatalf("got exit code %d, %v, %q and %q", o.code, err, o.stdout, o.stderr)
	}
	if len(s.Settings) != 1 || s.Settings[0].Key != "optimizer.lr" {
		t.Errorf("got settings that differ %v, want optimizer.lr alone", s.Settings)
	}
	for i := 0; i < 4; i += 2 {
		own, sent := s.Runs[i], s.Runs[i+1]
		if sent.Name != own.Name+" (MLflow)" || sent.Status != "finished" || sent.Model != own.Model ||
			sent.Steps != 60 || sent.Rate <= 0 || math.Abs(sent.Loss-own.Loss) > 1e-6*own.Loss {
			t.Errorf("got %+v from the server, want the values of %+v", sent, own)
		}
	}
	// The web address of the run's page must work, too.
	if o := execute([]string{"analyze", "--compare", s.Runs[1].Path, paths[1]}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "are the same run") {
		t.Errorf("%s: got exit code %d and %q, want 2, because it is %s", s.Runs[1].Path, o.code, o.stderr, paths[1])
	}
}
