package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// The weights of a finished run are lost. All machines of the job must exit with the same code, so that a launcher does
// not restart some of them. Only rank 0 opens the run.
func TestAllMachinesReportLostWeights(t *testing.T) {
	nativetest.Need(t, "shm", "libhetero_shm.so")
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"train.steps=5"}
	finish(t, p.command(dir, append(set, "parallel.ranks=2")...), 0).check(t, exit.Done, "")
	last := filepath.Join(dir, "run", "checkpoints", "step-00000005")
	reports := func(code int, says string) {
		t.Helper()
		port, second := porttest.Free(t), new(bytes.Buffer)
		other := asRank(p.command(dir, set...), 1, 2, port)
		other.Stderr = second
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		finish(t, asRank(p.command(dir, set...), 0, 2, port), 0).check(t, code, says)
		if got := exitOf(t, other.Wait()); got != code || !strings.Contains(second.String(), says) {
			t.Errorf("rank 1: got exit code %d, want %d with %q\n%s", got, code, says, second)
		}
		one := finish(t, p.command(dir, append(set, "parallel.ranks=2")...), 0) // the process supervises both ranks
		one.check(t, code, says)
		if code != exit.Done && strings.Contains(one.stderr, "rank 1 (process") {
			t.Errorf("got a failure of rank 1, want only that of rank 0, which has the reason\n%s", one.stderr)
		}
	}
	reports(exit.Done, "")
	manifest := filepath.Join(last, "MANIFEST")
	if err := os.Rename(manifest, manifest+"-1"); err != nil {
		t.Fatal(err)
	}
	// The link causes ELOOP: missing permissions would not stop root.
	if err := syscall.Symlink("MANIFEST", manifest); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(manifest); err == nil {
		t.Fatal("the manifest can be read")
	}
	reports(exit.Usage, "is finished, but its checkpoints cannot be read")
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	reports(exit.Data, "is finished, but its weights are lost")
}
