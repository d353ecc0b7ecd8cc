package experiment

import (
	"testing"
)

// The result of an earlier process is superseded from the moment at which a later one begins to train.
func TestResultsOfEarlierProcesses(t *testing.T) {
	dir := t.TempDir()
	superseded := func() bool {
		t.Helper()
		r, err := ReadResult(dir + "/demo")
		if err != nil {
			t.Fatal(err)
		}
		return r.Superseded
	}
	first := mustOpen(t, auto(dir))
	if !first.Owes() {
		t.Error("a run that began owes no result")
	}
	if err := first.WriteResult(Result{Steps: 10, Exit: 75}); err != nil {
		t.Fatal(err)
	}
	if first.Owes() || superseded() {
		t.Error("a run with a result owes one, or is superseded")
	}
	first.Close()
	looks, err := Open(auto(dir))
	if err != nil {
		t.Fatal(err)
	}
	if looks.Owes() || superseded() {
		t.Error("a command that only opened the folder changed the state of the run")
	}
	if err := looks.Begin(); err != nil {
		t.Fatal(err)
	}
	if !looks.Owes() || !superseded() {
		t.Error("the result of the earlier process counts as that of the later one")
	}
	looks.Close()
}
