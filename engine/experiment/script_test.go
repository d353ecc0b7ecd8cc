package experiment

import (
	"strings"
	"testing"
)

func TestOutcomesOfScripts(t *testing.T) {
	step := int64(13)
	for _, c := range []struct {
		name  string
		saved *int64
		r     Result
		state State
		why   []string
	}{
		{"closed", nil, Result{Script: &Script{Closed: true}}, Finished, nil},
		{"not closed", nil, Result{Steps: 22}, Stopped, []string{"step 22 without balancer.close()", "no checkpoint"}},
		{"Ctrl-C", &step, Result{Steps: 22, Exit: 130}, Stopped, []string{"after step 22", "is of step 13"}},
		{"Ctrl-C without a checkpoint", nil, Result{Steps: 22, Exit: 130}, Stopped, []string{"no checkpoint"}},
		{"an exception", &step, Result{Steps: 22, Exit: 1, Error: "no memory"}, Failed,
			[]string{"exit code 1: no memory", "is of step 13"}},
	} {
		if c.r.Script == nil {
			c.r.Script = &Script{}
		}
		c.r.Script.Saved = c.saved
		state, why := c.r.Outcome()
		if state != c.state || (len(c.why) == 0) != (why == "") {
			t.Errorf("%s: got %s, %q", c.name, state, why)
		}
		for _, text := range c.why {
			if !strings.Contains(why, text) {
				t.Errorf("%s: got %q, want %q", c.name, why, text)
			}
		}
	}
}

func TestAScriptIsReadBack(t *testing.T) {
	run := mustOpen(t, Options{OutputDir: t.TempDir(), Name: "run", Resume: ResumeNone})
	root := rootOf(t, run)
	if got := ReadScript(root); got != nil {
		t.Errorf("a run without a script: got %+v", got)
	}
	step := int64(7)
	if err := run.NoteScript(&Script{Program: "PyTorch 2.15.0", Saved: &step}); err != nil {
		t.Fatal(err)
	}
	if got := ReadScript(root); got == nil || got.Program != "PyTorch 2.15.0" || *got.Saved != 7 || got.Closed {
		t.Errorf("got %+v", got)
	}
}
