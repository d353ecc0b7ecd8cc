package program

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Flags that select a larger run for measurements.
var (
	killConfig = flag.String("kill-config", "",
		"configuration of the run that is killed, on the CPU device with HETERO_LIB_DIR set")
	killStart = flag.Duration("kill-start", 30*time.Millisecond, "time that a start of it takes")
)

// The test kills the program 20 times at random moments, also during saves. Then it lets the program finish.
func TestKilledRunsResumeBitEqual(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	set := []string{"train.steps=600"}
	if *killConfig != "" {
		p.config, set = *killConfig, nil
	}
	command := func(output string) *exec.Cmd { return p.command(filepath.Join(dir, output), set...) }
	begun := time.Now()
	if out, err := command("whole").CombinedOutput(); err != nil {
		t.Fatalf("undisturbed run: %v\n%s", err, out)
	}
	pause := time.Since(begun) / 80 // lets 20 kills occur within the run on a machine of any speed
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for attempt := 1; kills < 20; attempt++ {
		c := command("killed")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(*killStart + time.Duration(random.Int64N(int64(2*pause))))
		c.Process.Kill() // an error means that the run has ended
		if c.Wait() != nil {
			kills++
			continue
		}
		// During the undisturbed run, the machine had other load that has ended since.
		t.Logf("attempt %d: the run was done after %d kills, with a mean pause of %v", attempt, kills, pause)
		if attempt == 4 {
			t.Fatal("want 20 kills: give the run more steps")
		}
		kills, pause = 0, max(pause/3, 1)
		if err := os.RemoveAll(filepath.Join(dir, "killed")); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command("killed").CombinedOutput(); err != nil {
		t.Fatalf("after %d kills (seed %d): %v\n%s", kills, seed, err, out)
	}
	whole, killed := filepath.Join(dir, "whole", "run"), filepath.Join(dir, "killed", "run")
	end := resultOf(t, whole)
	if got := resultOf(t, killed); got != end {
		t.Errorf("after %d kills: got %+v, undisturbed %+v", kills, got, end)
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		at := filepath.Join("checkpoints", checkpoint.StepName(end.Steps), name)
		if !bytes.Equal(clitest.ReadFile(t, filepath.Join(whole, at)), clitest.ReadFile(t, filepath.Join(killed, at))) {
			t.Errorf("%s differs after %d kills", name, kills)
		}
	}
	records, damaged, err := runtime.ReadMetrics(filepath.Join(killed, "logs", runtime.FileName(0)))
	if err != nil || damaged != 0 {
		t.Fatalf("metrics: %v, %d damaged lines", err, damaged)
	}
	if int64(len(records)) != end.Steps {
		t.Errorf("metrics: got records of %d steps, want all %d", len(records), end.Steps)
	}
	for i, r := range records {
		if r.Iteration != int64(i+1) {
			t.Fatalf("metrics: record %d is of step %d", i+1, r.Iteration)
		}
	}
}
