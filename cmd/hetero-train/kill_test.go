package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// buildProgram builds the real binary once for a test.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hetero-train")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

const killConfig = `
[experiment]
name = "run"
[device]
kind = "reference"
[model]
name = "simple_cnn"
channels = [3, 4]
dropout = 0.1
[data]
dataset = "synthetic_image"
batch_size = 8
num_samples = 80
image_size = 8
crop_padding = 1
flip = true
[train]
epochs = 0
steps = 1200
eval_interval = 10
log_interval = 100
[optimizer]
name = "adamw"
[checkpoint]
interval_steps = 5
interval_seconds = 0.0
keep = 2
`

// TestKilledRunsResumeBitEqual kills the program 20 times at random moments, also while it saves, and lets it finish.
func TestKilledRunsResumeBitEqual(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	program, dir := buildProgram(t), t.TempDir()
	file := filepath.Join(dir, "run.toml")
	if err := os.WriteFile(file, []byte(killConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	command := func(output string) *exec.Cmd {
		return exec.Command(program, "-c", file, "--set", "experiment.output_dir="+filepath.Join(dir, output))
	}
	if out, err := command("whole").CombinedOutput(); err != nil {
		t.Fatalf("undisturbed run: %v\n%s", err, out)
	}
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for kills < 20 {
		c := command("killed")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(30+random.IntN(200)) * time.Millisecond)
		if err := c.Process.Kill(); err != nil {
			break // it was done before: too slow a killer
		}
		if c.Wait() == nil {
			break
		}
		kills++
	}
	if kills < 20 {
		t.Errorf("the run was done after %d kills, want 20: give it more steps", kills)
	}
	if out, err := command("killed").CombinedOutput(); err != nil {
		t.Fatalf("after %d kills (seed %d): %v\n%s", kills, seed, err, out)
	}
	whole, killed := filepath.Join(dir, "whole", "run"), filepath.Join(dir, "killed", "run")
	if a, b := finalLoss(t, whole), finalLoss(t, killed); a != b {
		t.Errorf("final loss after %d kills: got %v, undisturbed %v", kills, b, a)
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		at := filepath.Join("checkpoints", "step-00001200", name)
		if !bytes.Equal(readFile(t, filepath.Join(whole, at)), readFile(t, filepath.Join(killed, at))) {
			t.Errorf("%s differs after %d kills", name, kills)
		}
	}
	records, damaged, err := runtime.ReadMetrics(filepath.Join(killed, "logs", runtime.FileName(0)))
	if err != nil || damaged != 0 {
		t.Fatalf("metrics: %v, %d damaged lines", err, damaged)
	}
	for i := 1; i < len(records); i++ {
		if records[i].Iteration <= records[i-1].Iteration {
			t.Fatalf("metrics: step %d follows step %d", records[i].Iteration, records[i-1].Iteration)
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func finalLoss(t *testing.T, dir string) json.Number {
	t.Helper()
	var r struct {
		Loss json.Number `json:"final_train_loss"`
		Exit int
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "results", "result.json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Exit != 0 {
		t.Fatalf("%s: exit %d", dir, r.Exit)
	}
	return r.Loss
}
