package runs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The page, the final table and `analyze` must show the same account of a run: that of the summary.
func TestTheAccountOfARunIsThatOfItsSummary(t *testing.T) {
	summary := func(steps, parts string) string {
		return `{"steps":` + steps + `,"first_step":1,"bottleneck":{"step_seconds":0.171,"parts_seconds_per_step":` +
			parts + `}}`
	}
	const good = `{"useful":0.14,"imbalance":0.031}`
	dir := t.TempDir()
	f := newFakeRun(t, dir, "run", 1)
	f.steps(1, 60)
	run := open(t, dir, "run")
	if a := run.View().Account; a != nil {
		t.Fatalf("without a summary, the account is %+v", a)
	}
	path := filepath.Join(f.dir, logsFolder, summaryFile)
	for i, c := range []struct {
		name, text string
		want       bool
	}{
		{"that of all steps", summary("60", good), true},
		{"that of an earlier process", summary("50", good), false},
		{"again that of all steps", summary("60", good), true},
		{"a negative part", summary("60", `{"useful":0.2,"imbalance":-0.03}`), false},
		{"a part that exceeds the step", summary("60", `{"useful":0.2}`), false},
		{"a damaged file", `{"steps":60,`, false},
	} {
		before := run.Version()
		f.write(logsFolder+"/"+summaryFile, c.text)
		at := time.Now().Add(time.Duration(i) * time.Second) // times of files may be coarse, so the test sets them
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		update(run)
		if run.Version() == before {
			t.Errorf("%s: the version did not grow", c.name)
		}
		a := run.View().Account
		if (a != nil) != c.want {
			t.Errorf("%s: got %+v, want one: %v", c.name, a, c.want)
		}
		if a != nil && (a.From != 3 || a.To != 60 || a.Seconds != 0.171 || a.Parts["imbalance"] != 0.031) {
			t.Errorf("%s: got %+v", c.name, a)
		}
	}
}
