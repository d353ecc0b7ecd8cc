package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// scripts/gpu_check.sh must resolve paths relative to the caller's folder, although it runs in its own folder.
func TestGPUCheckTakesTheCallersPaths(t *testing.T) {
	script, err := filepath.Abs("../../../scripts/gpu_check.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho '{}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", script, "--parts", "peak", "--binary", "program", "--output", "a folder")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "a folder", "gpu_check.json")); err != nil {
		t.Error(err)
	}
}
