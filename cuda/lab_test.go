package cuda_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// labProgram is the name of the kernel lab (lab/) compiled for the host. The file is in the parent of the libraries'
// folder.
const labProgram = "cuda-lab-host"

// runLab runs the kernel lab. It returns the output on both streams, and the exit code.
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

// Every variant of an experiment must compute correct results at small sizes. The variants include the kernels of
// cuda/src.
func TestLabVariantsComputeWhatTheyShould(t *testing.T) {
	out, code := runLab(t, "--check")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	checked := map[string]int{} // number of correct results of each experiment: variants × sizes × types
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
