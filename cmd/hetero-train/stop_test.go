package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exitOf is a finished process's exit code.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	var e *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e.ExitCode()
}

// TestRunsEndWithTheDocumentedExitCodes runs the real binary into each end that a script may meet.
func TestRunsEndWithTheDocumentedExitCodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	program, dir := buildProgram(t), t.TempDir()
	file := filepath.Join(dir, "run.toml")
	if err := os.WriteFile(file, []byte(killConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	notImages := filepath.Join(dir, "images.tar")
	if err := os.WriteFile(notImages, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		set    []string
		signal syscall.Signal // sent once the run has shown a step; 0 = none
		want   int
		says   string // in standard error
	}{
		{"done", []string{"train.steps=10"}, 0, exitDone, ""},
		{"interrupt", []string{"train.steps=100000"}, syscall.SIGINT, exitInterrupted, "saved"},
		{"terminate", []string{"train.steps=100000"}, syscall.SIGTERM, exitTerminated, "saved"},
		{"unknown key", []string{"train.stepz=1"}, 0, exitUsage, "train.steps"},
		{"diverged", []string{"optimizer.lr=1e38", "optimizer.name=sgd", "train.nan_patience=2", "train.nan_rollbacks=1"}, 0, exitDiverged, "not finite"},
		{"damaged data", []string{"data.dataset=images", "data.path=" + notImages, "data.image_size=8"}, 0, exitData, "images.tar"},
		{"too small an image", []string{"model.channels=[1,1,1,1,1,1]", "train.steps=1"}, 0, exitUsage, "pool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"-c", file, "--set", "experiment.output_dir=" + t.TempDir(), "--set", "train.log_interval=1"}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			cmd := exec.Command(program, args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if c.signal != 0 {
				time.Sleep(time.Second)
				if err := cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			if got := exitOf(t, cmd.Wait()); got != c.want {
				t.Errorf("exit code: got %d, want %d\n%s", got, c.want, stderr.String())
			}
			if !strings.Contains(stderr.String(), c.says) {
				t.Errorf("standard error does not say %q:\n%s", c.says, stderr.String())
			}
		})
	}
}

func TestASecondRunInTheSameFolderIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	program, dir := buildProgram(t), t.TempDir()
	file := filepath.Join(dir, "run.toml")
	if err := os.WriteFile(file, []byte(killConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", file, "--set", "experiment.output_dir=" + dir, "--set", "train.steps=1000000"}
	first := exec.Command(program, args...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		first.Process.Kill()
		first.Wait()
	}()
	time.Sleep(time.Second)
	out, err := exec.Command(program, args...).CombinedOutput()
	if got := exitOf(t, err); got != exitUsage || !strings.Contains(string(out), "in use") {
		t.Errorf("got exit %d and %q, want exit 2 and who holds the folder", got, out)
	}
}
