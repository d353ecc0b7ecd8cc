package bench

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// A fake program writes an invalid timeline, which scripts/gpu_check.sh must refuse.
func TestGPUCheckJudgesATimeline(t *testing.T) {
	needtest.Programs(t, "tools", "bash", "timeout")
	needtest.Programs(t, "python3", "python3")
	used := func(change func(*GPUUse)) *tracedSteps {
		g := &GPUUse{Steps: 5, Kernels: []GPUKernel{{Name: "adamw", Count: 1}},
			Waits: []gpuWait{{Call: "cudaStreamSynchronize", Count: 1}}}
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
		{"waits with more to do", used(func(g *GPUUse) { g.Waits[0].Within = 0.2 }), 1,
			"('cudaStreamSynchronize', 1, 0.2)"},
		{"waits for memory", used(func(g *GPUUse) { g.Waits = append(g.Waits, gpuWait{Call: "cudaFree", Count: 0.2}) }),
			1, "('cudaFree', 0.2, 0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told, err := json.Marshal(map[string]any{"trace": c.trace})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\ncat <<'TOLD'\n"+string(told)+"\nTOLD\n"), 0o755); err !=
				nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../../../../../scripts/gpu_check.sh", "--parts", "trace", "--binary", program,
				"--output", dir)
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
			if code, said := cmd.ProcessState.ExitCode(), string(out)+string(logged); code != c.code ||
				!strings.Contains(said, c.said) {
				t.Errorf("got exit code %d, want %d and %q: %s", code, c.code, c.said, said)
			}
		})
	}
}

// Part "attention" of scripts/gpu_check.sh prints the rates of attention and of linear layers, and the kernels that
// were chosen for biases and row sums. It does not read the user's cache. It fails if the run stores none of these
// choices.
func TestGPUCheckPrintsRatesAndChoicesOfLayers(t *testing.T) {
	needtest.Programs(t, "tools", "bash", "timeout")
	needtest.Programs(t, "python3", "python3")
	dir := t.TempDir()
	program, cache := filepath.Join(dir, "program"), filepath.Join(dir, "cache")
	result := `{"peak_gflops": 1000, "ops": [{"op": "attention", "flops": 1e9, "seconds": 0.002}, {"op": "attention_diff", "flops": 2e9, "seconds": 0.004}, {"op": "linear", "flops": 1e9, "seconds": 0.004}]}`
	choices := "hetero-train choices 1\nproduct m8 n2 k4 bf16 TN f32 and bias\tone pass a3\t7.5\nproduct m8 n2 k4 bf16 TN f32\ta2\t9\n"
	if err := os.MkdirAll(filepath.Join(cache, "hetero-train", "choices"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho '" + result +
		"'\n[ \"$NO_CHOICES\" ] && exit\nmkdir -p \"$XDG_CACHE_HOME/hetero-train/choices\"\n" +
		"cat >\"$XDG_CACHE_HOME/hetero-train/choices/H100.tsv\" <<'END'\n" + choices + "END\n"
	users := strings.ReplaceAll(choices, "one pass a3", "a1 of the user")
	for path, text := range map[string]string{
		program: script, filepath.Join(cache, "hetero-train", "choices", "H100.tsv"): users} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("../../../../../scripts/gpu_check.sh", "--parts", "attention", "--binary", program, "--output",
		dir)
	cmd.Env = append(os.Environ(), "PYTHON=python3", "XDG_CACHE_HOME="+cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	logged, err := os.ReadFile(filepath.Join(dir, "attention.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"attention: 2.000 ms a step, 500 GFLOP/s, 50.0 % of the peak",
		"linear: 4.000 ms a step, 250 GFLOP/s, 25.0 % of the peak",
		"product m8 n2 k4 bf16 TN f32 and bias: one pass a3, 7.5 us"} {
		if !strings.Contains(string(logged), want) {
			t.Errorf("got %q, want %q in it", logged, want)
		}
	}
	if strings.Contains(string(logged), "a2") || strings.Contains(string(logged), "a1") {
		t.Errorf("got %q, want only choices of this run for biases and row sums", logged)
	}
	cmd = exec.Command(cmd.Args[0], cmd.Args[1:]...)
	cmd.Env = append(os.Environ(), "PYTHON=python3", "XDG_CACHE_HOME="+cache, "NO_CHOICES=1")
	if out, err := cmd.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no choice for a bias or for row sums") {
		t.Errorf("without choices: got %v, %q, want a failure", err, out)
	}
}
