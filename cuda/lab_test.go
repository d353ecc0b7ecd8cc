package cuda_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// labProgram is the kernel lab (lab/), compiled for the host. It is next to the folder of the libraries.
const labProgram = "cuda-lab-host"

// runLab returns the program's output (both streams) and its exit code.
func runLab(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path := filepath.Join(nativetest.Need(t, "cpu", filepath.Join("..", labProgram)), "..", labProgram)
	cmd := exec.Command(path, args...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// All variants must be right at small sizes, including the kernels of cuda/src.
func TestLabVariantsComputeWhatTheyShould(t *testing.T) {
	out, code := runLab(t, "--check")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	checked := map[string]int{} // by experiment: number of variants times sizes times types
	for line := range strings.Lines(out) {
		if strings.Contains(line, "WRONG") {
			t.Error(strings.TrimSpace(line))
		}
		if strings.HasSuffix(line, " ok\n") {
			checked[strings.Fields(line)[0]]++
		}
	}
	for name, variants := range map[string]int{"copy": 4, "batchnorm_stats": 10, "batchnorm_apply": 4} {
		if got, want := checked[name], variants*4*2; got < want {
			t.Errorf("%s: got %d results that are right, want at least %d", name, got, want)
		}
	}
}

func TestLabRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "built for the host, where times mean nothing: want --check"},
		{"--check --only conv", "--only: got conv, want one of copy batchnorm_stats batchnorm_apply"},
		{"--chekc", "got --chekc\nusage: cuda-lab"},
	} {
		out, code := runLab(t, strings.Fields(c.args)...)
		if code != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%q: got exit code %d, %q; want 2, %q", c.args, code, out, c.want)
		}
	}
}
