package bench

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The script must refuse an invalid timeline, which a fake program writes.
func TestGPUCheckJudgesATimeline(t *testing.T) {
	for _, tool := range []string{"bash", "timeout", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	used := func(change func(*GPUUse)) *tracedSteps {
		g := &GPUUse{Steps: 5, Kernels: []GPUKernel{{Name: "adamw", Count: 1}}, Waits: []gpuWait{{Call: "cudaStreamSynchronize", Count: 1}}}
		change(g)
		return &tracedSteps{Steps: 5, GPU: g}
	}
	for _, c := range []struct {
		name  string
		trace *tracedSteps
		code  int
		said  string
	}{
		{"sound", used(func(*GPUUse) {}), 0, "passed"},
		{"no CUPTI", &tracedSteps{Missing: "there is no libcupti.so.13"}, 0, "skipped: there is no libcupti.so.13"},
		{"nothing of a GPU", &tracedSteps{Steps: 5}, 1, "no kernel of a GPU"},
		{"no kernels", used(func(g *GPUUse) { g.Kernels = []GPUKernel{} }), 1, "no kernel of a GPU"},
		{"no timeline", nil, 1, "NoneType"},
		{"records lost", used(func(g *GPUUse) { g.Lost = 3 }), 1, "3 records were lost"},
		{"no calls", used(func(g *GPUUse) { g.Waits = []gpuWait{} }), 1, "got [], want the one"},
		{"waits twice", used(func(g *GPUUse) { g.Waits[0].Count = 2 }), 1, "('cudaStreamSynchronize', 2, 0)"},
		{"waits with more to do", used(func(g *GPUUse) { g.Waits[0].Within = 0.2 }), 1, "('cudaStreamSynchronize', 1, 0.2)"},
		{"waits for memory", used(func(g *GPUUse) { g.Waits = append(g.Waits, gpuWait{Call: "cudaFree", Count: 0.2}) }), 1, "('cudaFree', 0.2, 0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told, err := json.Marshal(map[string]any{"trace": c.trace})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\ncat <<'TOLD'\n"+string(told)+"\nTOLD\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../../../../../scripts/gpu_check.sh", "--parts", "trace", "--binary", program, "--output", dir)
			cmd.Env = append(os.Environ(), "PYTHON=python3")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			logged, err := os.ReadFile(filepath.Join(dir, "trace.log"))
			if err != nil {
				t.Fatal(err)
			}
			if code, said := cmd.ProcessState.ExitCode(), string(out)+string(logged); code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("got exit code %d, want %d and %q: %s", code, c.code, c.said, said)
			}
		})
	}
}
