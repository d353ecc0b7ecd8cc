package experiment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// When a later process begins to train, the result of the earlier process must count as superseded.
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
	ends := []string{"results/result.json", "results/results.md", "logs/summary.json", "logs/latency_histogram.png"}
	for _, name := range ends[1:] {
		if err := os.WriteFile(filepath.Join(dir, "demo", name), []byte("finished"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := looks.Begin(); err != nil {
		t.Fatal(err)
	}
	if !looks.Owes() || !superseded() {
		t.Error("the result of the earlier process counts as that of the later one")
	}
	for _, name := range ends {
		// This file must not exist. A program that reads only this file would assume that the run has ended.
		if _, err := os.Stat(filepath.Join(dir, "demo", name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s describes the end of the earlier process: %v", name, err)
		}
		kind := filepath.Ext(name)
		if _, err := os.Stat(filepath.Join(dir, "demo", strings.TrimSuffix(name, kind)+".previous"+kind)); err != nil {
			t.Error(err)
		}
	}
	looks.Close()
	killed, err := Open(auto(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer killed.Close()
	if err := killed.Begin(); err != nil || !superseded() {
		t.Errorf("after a process without a result: got %v, want the result of the first process, superseded", err)
	}
}
