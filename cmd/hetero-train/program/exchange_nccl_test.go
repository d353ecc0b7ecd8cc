package program

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestNCCLWithoutGPUIsRefused(t *testing.T) {
	out, err := buildProgram(t).command(t.TempDir(), "device.kind=reference", "parallel.backend=nccl").CombinedOutput()
	var code *exec.ExitError
	if !errors.As(err, &code) || code.ExitCode() != exit.Usage ||
		!strings.Contains(string(out), "parallel.backend: NCCL needs NVIDIA GPUs") {
		t.Errorf("got %v and %q", err, out)
	}
}
