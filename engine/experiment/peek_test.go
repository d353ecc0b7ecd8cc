package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

func TestPeekSeesTheCheckpointThatOpenGoesOnFrom(t *testing.T) {
	dir := t.TempDir()
	if _, err := Peek(auto(dir)); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("no run: got %v, want ErrNone", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("peeking made %v", entries)
	}
	run := mustOpen(t, auto(dir))
	checkpoints := run.CheckpointDir()
	if _, err := Peek(auto(dir)); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("no checkpoint: got %v, want ErrNone", err)
	}
	saveSteps(t, run, 3, 7)
	resume := func(path string) Options { return Options{OutputDir: dir, Name: "another", Resume: path} }
	for _, c := range []struct {
		name    string
		options Options
		want    int64 // step of the checkpoint; 0: ErrNone
	}{
		{"auto", auto(dir), 7},
		{"none", Options{OutputDir: dir, Name: "demo", Resume: ResumeNone}, 0},
		{"no name", Options{OutputDir: dir, Resume: ResumeAuto}, 0},
		{"the run's folder", resume(filepath.Join(dir, "demo")), 7},
		{"its checkpoints", resume(checkpoints), 7},
		{"one of them", resume(filepath.Join(checkpoints, checkpoint.StepName(3))), 3},
		{"the file that names one", resume(filepath.Join(checkpoints, "latest")), 7},
		{"a folder that is not there", resume(filepath.Join(dir, "gone")), 0},
	} {
		state, err := Peek(c.options)
		if state.Step != c.want || (err == nil) != (c.want > 0) || err != nil && !errors.Is(err, checkpoint.ErrNone) {
			t.Errorf("%s: got step %d, %v, want step %d", c.name, state.Step, err, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(checkpoints, checkpoint.StepName(7), "state.json"), []byte("{}"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if state, err := Peek(auto(dir)); state.Step != 3 {
		t.Errorf("the newest is damaged: got step %d, %v, want the one before, 3", state.Step, err)
	}
}
