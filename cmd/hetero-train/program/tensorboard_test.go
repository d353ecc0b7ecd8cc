package program

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
)

func TestEventFilesHoldEveryPointOnceAfterResuming(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	points := func(want int) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "run", "logs", observe.BoardFolder, "*tfevents*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("event files: %v, %v", files, err)
		}
		got := 0
		for _, file := range files {
			got += bytes.Count(clitest.ReadFile(t, file), []byte("train/loss"))
		}
		if got != want {
			t.Errorf("got %d points, want %d", got, want)
		}
	}
	run := func(set ...string) {
		t.Helper()
		finish(t, p.command(dir, append([]string{"profile.tensorboard_interval=4"}, set...)...), 0).check(t, exit.Done,
			"")
	}
	run("train.steps=20")
	points(6) // points at steps 1, 4, 8, 12, 16, 20
	run("train.steps=30")
	points(9) // further points at steps 24, 28, 30
	newest := filepath.Join(dir, "run", "checkpoints", "step-00000030")
	if err := os.RemoveAll(newest); err != nil {
		t.Fatal(err)
	}
	run("train.steps=31") // resumes from step 25: keeps the point of step 24, repeats 28, and replaces 30 by 31
	points(9)
	run("train.steps=31", "experiment.name=without", "profile.tensorboard_interval=0")
	if _, err := os.Stat(filepath.Join(dir, "without", "logs", observe.BoardFolder)); err == nil {
		t.Error("event files were written although profile.tensorboard_interval is 0")
	}
}
