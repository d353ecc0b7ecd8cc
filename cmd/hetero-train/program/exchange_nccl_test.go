package program

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestNCCLIsChosenWhereAllRanksCan(t *testing.T) {
	const no = "it computes on device cpu:0, which is no GPU"
	for _, c := range []struct {
		backend string
		share   bool
		noNCCL  []string
		want    bool
		fault   string
	}{
		{"auto", false, []string{"", ""}, true, ""},
		{"auto", false, []string{"", no}, false, ""},
		{"auto", true, []string{"", ""}, false, ""},
		{"nccl", false, []string{"", ""}, true, ""},
		{"nccl", true, []string{"", ""}, true, ""},
		{"nccl", false, []string{"", no}, false, "rank 1 cannot use it: " + no},
		{"gloo", false, []string{"", ""}, false, ""},
	} {
		got, err := choosesNCCL(c.backend, c.share, c.noNCCL)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && (!strings.Contains(err.Error(), c.fault) || exit.Code(err) != exit.Usage) {
			t.Errorf("%+v: got %v and %v", c, got, err)
		}
	}
}

func TestNCCLWithoutGPUIsRefused(t *testing.T) {
	out, err := buildProgram(t).command(t.TempDir(), "device.kind=reference", "parallel.backend=nccl").CombinedOutput()
	var code *exec.ExitError
	if !errors.As(err, &code) || code.ExitCode() != exit.Usage || !strings.Contains(string(out), "parallel.backend: NCCL is for NVIDIA GPUs") {
		t.Errorf("got %v and %q", err, out)
	}
}

// TestNoTimeoutIsNone: 0 would mean that operations never end.
func TestNoTimeoutIsNone(t *testing.T) {
	for _, c := range []struct {
		s    float64
		want time.Duration
	}{{0, 0}, {1e-12, 1}, {30, 30 * time.Second}, {1e300, 10 * 365 * 24 * time.Hour}} {
		if got := seconds(c.s); got != c.want {
			t.Errorf("%v s: got %v, want %v", c.s, got, c.want)
		}
	}
}
