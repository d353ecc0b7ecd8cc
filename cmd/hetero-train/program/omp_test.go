package program

import (
	"runtime"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// If OMP_NUM_THREADS is not a number, the error must contain only this. It must not contain the reasons why other
// devices were skipped.
func TestThreadsThatAreNoNumberAreTheWholeError(t *testing.T) {
	p := buildRanks(t)
	hasFastBF16(t) // skips the test if the CPU library is missing
	t.Setenv("OMP_NUM_THREADS", "abc")
	const want = `hetero-train: error: environment variable OMP_NUM_THREADS: got "abc", want a number of threads from 1`
	for _, set := range [][]string{{"train.steps=1", "device.kind=auto"}, {"train.steps=1", "device.kind=cpu"}} {
		e := finish(t, p.command(t.TempDir(), set...), 0)
		e.check(t, exit.Usage, want)
		if strings.Contains(e.stderr, "cuda") || strings.Contains(e.stderr, "reference") {
			t.Errorf("%v: the error names devices that have nothing to do with it:\n%s", set, e.stderr)
		}
	}
	finish(t, p.command(t.TempDir(), "train.steps=1", "device.kind=cpu", "device.threads=1"), 0).check(t, exit.Done, "")
}

func TestTheStartNamesWhatLimitsTheThreads(t *testing.T) {
	p := buildRanks(t)
	hasFastBF16(t)
	if runtime.NumCPU() < 2 {
		needtest.Missing(t, "cpus", "OMP_NUM_THREADS cannot lower the number of threads of one CPU")
	}
	const note = "1 thread (OMP_NUM_THREADS=1)"
	run := func(set ...string) string {
		e := finish(t, p.command(t.TempDir(), append(set, "train.steps=1", "device.kind=cpu")...), 0)
		e.check(t, exit.Done, "")
		return e.stdout
	}
	t.Setenv("OMP_NUM_THREADS", "1")
	if got := run(); !strings.Contains(got, note) {
		t.Errorf("got %s, want %q", got, note)
	}
	if got := run("device.threads=1"); strings.Contains(got, "OMP_NUM_THREADS") {
		t.Errorf("device.threads decides: got %s", got)
	}
	t.Setenv("OMP_NUM_THREADS", "4096")
	if got := run(); strings.Contains(got, "OMP_NUM_THREADS") {
		t.Errorf("more than there are CPUs: got %s", got)
	}
}
