package main

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// TestKilledRunsResumeBitEqual kills the program 20 times at random moments, also while it saves, and lets it finish.
func TestKilledRunsResumeBitEqual(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	command := func(output string) *exec.Cmd { return p.command(filepath.Join(dir, output)) }
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
	if len(records) != 1200 {
		t.Errorf("metrics: got records of %d steps, want all 1200", len(records))
	}
	for i, r := range records {
		if r.Iteration != int64(i+1) {
			t.Fatalf("metrics: record %d is of step %d", i+1, r.Iteration)
		}
	}
}
