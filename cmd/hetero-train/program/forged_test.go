package program

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// forge changes a number in the state of a checkpoint, and updates the checksums in the manifest.
func forge(t *testing.T, folder, key, value string) {
	t.Helper()
	state := clitest.ReadFile(t, filepath.Join(folder, "state.json"))
	// With two spaces, the pattern matches only keys of the outermost object.
	number := regexp.MustCompile(`(?m)^  "` + key + `": [0-9]+`)
	if len(number.FindAll(state, -1)) != 1 {
		t.Fatalf("no number %q in %s", key, state)
	}
	forged := number.ReplaceAll(state, fmt.Appendf(nil, `  "%s": %s`, key, value))
	sum := func(b []byte) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256(b)) }
	manifest := clitest.ReadFile(t, filepath.Join(folder, "MANIFEST"))
	manifest = bytes.Replace(manifest, fmt.Appendf(nil, " %d %s", len(state), sum(state)),
		fmt.Appendf(nil, " %d %s", len(forged), sum(forged)), 1)
	last := bytes.LastIndex(manifest, []byte("\nmanifest ")) + 1
	manifest = fmt.Appendf(manifest[:last], "manifest %s\n", sum(manifest[:last]))
	if err := errors.Join(os.WriteFile(filepath.Join(folder, "state.json"), forged, 0o644),
		os.WriteFile(filepath.Join(folder, "MANIFEST"), manifest, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint with impossible counters must count as damaged, even if its checksums are correct.
func TestForgedCountersAreExitCode3(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=10"), 0).check(t, exit.Done, "")
	folder := filepath.Join(dir, "run", "checkpoints", checkpoint.StepName(10))
	state, manifest := clitest.ReadFile(t, filepath.Join(folder, "state.json")),
		clitest.ReadFile(t, filepath.Join(folder, "MANIFEST"))
	for _, c := range []struct{ key, value, want string }{
		{"samples_seen", "9223372036854775800", "samples seen 9223372036854775800: want at most "},
		{"step", "9223372036854775807", "step 9223372036854775807, "},
		{"epoch", "9223372036854775807", "epoch 9223372036854775807, "},
	} {
		if err := errors.Join(os.WriteFile(filepath.Join(folder, "state.json"), state, 0o644),
			os.WriteFile(filepath.Join(folder, "MANIFEST"), manifest, 0o644)); err != nil {
			t.Fatal(err)
		}
		forge(t, folder, c.key, c.value)
		finish(t, p.command(dir, "train.steps=20", "train.resume="+folder), 0).check(t, exit.Data, c.want)
		finish(t, exec.Command(p.path, "checkpoint", "verify", folder), 0).check(t, exit.Data, "")
	}
	finish(t, p.command(dir, "train.steps=20"), 0).check( // the run must resume from an earlier checkpoint
		t, exit.Done, "skipped: "+folder+"/state.json is corrupt: ")
	again := filepath.Join(dir, "run", "checkpoints", checkpoint.StepName(20))
	forge(t, again, "step", "20") // with updated checksums, another valid number is not damage
	finish(t, p.command(dir, "train.steps=30", "train.resume="+again), 0).check(t, exit.Done, "was=20 now=30")
}
