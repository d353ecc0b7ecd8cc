// Package pytorch runs the tests of the Python package hetero_train.
package pytorch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// python returns a Python that can import torch. HETERO_TORCH names it; the default is python3 in PATH.
func python(t *testing.T) string {
	t.Helper()
	name := os.Getenv("HETERO_TORCH")
	if name == "" {
		name = "python3"
	}
	if out, err := exec.Command(name, "-c", "import torch.distributed; assert torch.distributed.is_gloo_available()").
		CombinedOutput(); err != nil {
		needtest.Missing(t, "torch", string(bytes.TrimSpace(out))+err.Error())
	}
	return name
}

// skipped matches a test that unittest skips, with the reason.
var skipped = regexp.MustCompile(`(?m)\bskipped ['"](.*)['"]$`)

// TestPackage runs the Python tests on this program. Each test forks its ranks, which Gloo connects.
func TestPackage(t *testing.T) {
	needtest.NotShort(t, "starts many ranks of PyTorch, which takes a minute")
	interpreter := python(t)
	program := filepath.Join(t.TempDir(), "hetero-train")
	if out, err := exec.Command("go", "build", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", program,
		"../../cmd/hetero-train").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("example", func(t *testing.T) {
		dir := t.TempDir()
		cmd := exec.Command(interpreter, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
			filepath.Join("..", "..", "examples", "pytorch", "train.py"), "--output-dir", dir)
		cmd.Env = append(os.Environ(), "HETERO_TRAIN="+program, "PYTHONPATH="+folder, "PYTHONDONTWRITEBYTECODE=1",
			"OMP_NUM_THREADS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "pytorch_example", "results", "result.json")); err != nil ||
			!bytes.Contains(text, []byte(`"state": "finished"`)) {
			t.Errorf("got the result %s, %v; want a finished run", text, err)
		}
	})
	for _, name := range []string{"test_sampler", "test_gradients", "test_errors", "test_adapters", "test_lightning",
		"test_profile", "test_records", "test_sync_norm", "test_timing"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(interpreter, "-W", "ignore", "-m", "unittest", "-v", name)
			cmd.Dir = filepath.Join(folder, "tests")
			cmd.Env = append(os.Environ(), "HETERO_TRAIN="+program, "PYTHONPATH="+folder, "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
			for _, reason := range skipped.FindAllSubmatch(out, -1) {
				t.Run("skipped", func(t *testing.T) { t.Skip(string(reason[1])) })
			}
		})
	}
}
