package program

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// Image classifiers must have the same figures by class as text classifiers: F1 as the metric of the best evaluation, a
// warning about classes that are never predicted, and tables of eval.
func TestImagesHaveFiguresByClass(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallRun)
	out := finish(t, p.command(dir, "train.steps=20", "train.eval_interval=1", "optimizer.lr=0.00001",
		"checkpoint.best_metric=macro_f1"), 0)
	out.check(t, exit.Done, "the model never predicts")
	if strings.Count(out.stdout, " % | macro F1 0.") != 2 ||
		strings.Count(out.stderr, "the model never predicts") != 1 {
		t.Errorf("want macro F1 in both evaluations, and one warning:\n%s%s", out.stdout, out.stderr)
	}
	run := filepath.Join(dir, "run")
	if text := string(clitest.ReadFile(t, filepath.Join(run, "logs", "events.jsonl"))); strings.Count(text,
		`"metrics":{"macro_f1":`) != 2 {
		t.Errorf("the events of the evaluations have no macro F1:\n%s", text)
	}
	o := execute([]string{"eval", run, "--json", "--by-class"})
	var e inference.Evaluation
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || o.code != exit.Done || e.F1 == nil ||
		e.MacroF1 == nil || *e.F1 != *e.MacroF1 || len(e.ByClass) != e.Classes {
		t.Fatalf("exit %d, %v: %s%s", o.code, err, o.stdout, o.stderr)
	}
	samples, predicted, hits := int64(0), int64(0), 0.0
	for _, c := range e.ByClass {
		samples, predicted, hits = samples+c.Samples, predicted+c.Predicted, hits+c.Recall*float64(c.Samples)
	}
	if samples != int64(e.Samples) || predicted != samples || int(hits+0.5) != int(e.Top1*float64(e.Samples)+0.5) ||
		!strings.Contains(o.stderr, "the model never predicts") {
		t.Errorf("%d samples, %d predictions, %v hits do not fit %+v; %s", samples, predicted, hits, e, o.stderr)
	}
	if o := execute([]string{"eval", run, "--by-class"}); o.code != exit.Done ||
		!strings.Contains(o.stdout, " | F1 0.") || !strings.Contains(o.stdout, "precision    recall") ||
		strings.Count(o.stdout, "\n") != 4+e.Classes {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"eval", run}); strings.Contains(o.stdout, "precision") {
		t.Errorf("figures by class without --by-class:\n%s", o.stdout)
	}
}

// Each step needs a whole batch. At its start, a run must state how many samples this leaves out.
func TestSamplesOutsideWholeBatchesAreStated(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	for config, want := range map[string]string{smallRun: ", 10 steps per epoch\n", strings.Replace(smallRun,
		"num_samples = 80", "num_samples = 83", 1): ", 10 steps per epoch, which leave out 3 other samples\n"} {
		p.config = clitest.WriteConfig(t, config)
		if out := finish(t, p.command(t.TempDir(), "train.steps=2"), 0); !strings.Contains(out.stdout, want) {
			t.Errorf("want %q in\n%s", want, out.stdout)
		}
	}
}
