package program

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/nccl"
)

func TestNCCLCommandsWantAGPU(t *testing.T) {
	if cuda.Available() == nil && nccl.Available() == nil {
		t.Skip("there is one")
	}
	p := buildProgram(t)
	for _, name := range []string{"check", "tune"} {
		out, err := exec.Command(p.path, "nccl", name, "--nproc-per-node", "2").CombinedOutput()
		var code *exec.ExitError
		if !errors.As(err, &code) || code.ExitCode() != exit.Usage ||
			!strings.Contains(string(out), "nccl "+name+": there is no GPU to use: ") {
			t.Errorf("%s: got %v and %q", name, err, out)
		}
	}
}
