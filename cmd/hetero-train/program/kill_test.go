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
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// These flags select a larger run for measurements.
var (
	killConfig = flag.String("kill-config", "",
		"configuration of the run that is killed, on the CPU device with HETERO_LIB_DIR set")
	killStart = flag.Duration("kill-start", 30*time.Millisecond, "time that a start of it takes, about")
)

// The test kills the program 20 times at random times, also during saves, and then lets it finish. At least 5 of the
// kills must come after a new checkpoint. Otherwise, most kills would hit the start of the program.
func TestKilledRunsResumeBitEqual(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	var set []string
	if !needtest.Large.On() {
		set = []string{"train.steps=600"} // enough steps for 20 kills; the long test has the 1200 steps of smallRun
	}
	if *killConfig != "" {
		p.config, set = *killConfig, nil
	}
	command := func(output string) *exec.Cmd { return p.command(filepath.Join(dir, output), set...) }
	whole, killed := filepath.Join(dir, "whole", "run"), filepath.Join(dir, "killed", "run")
	begun := time.Now()
	if out, err := command("whole").CombinedOutput(); err != nil {
		t.Fatalf("undisturbed run: %v\n%s", err, out)
	}
	end := resultOf(t, whole)
	const kills, least, seed = 20, 5, 11
	random := rand.New(rand.NewPCG(seed, 0))
	pause := *killStart + time.Since(begun)/(4*kills) // mean time between a start and its kill
	for attempt := 1; ; attempt++ {
		hit, saves, newest := 0, 0, int64(0)
		for hit < kills {
			c := command("killed")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause/2 + time.Duration(random.Int64N(int64(pause))))
			c.Process.Kill() // an error means that the run has already ended
			if c.Wait() == nil {
				break
			}
			hit++
			step, _ := checkpoint.NewestStep(filepath.Join(killed, "checkpoints"))
			if step > newest {
				saves++
			}
			// The load of the machine changes the time of a start and of a step, so the test adjusts the pause.
			switch {
			case 4*kills*step > 3*int64(hit)*end.Steps: // at this rate, the run would end before the last kill
				pause = max(pause*4/5, 2)
			case step <= newest:
				pause = pause * 5 / 4
			}
			newest = max(newest, step)
		}
		t.Logf("attempt %d: %d kills, %d of them after a new checkpoint; newest checkpoint: step %d of %d; mean pause: %v",
			attempt, hit, saves, newest, end.Steps, pause)
		if hit == kills && saves >= least {
			break
		}
		if attempt == 3 {
			t.Fatalf("want %d kills, and %d after a new checkpoint: give the run more steps, or change -kill-start",
				kills, least)
		}
		if hit < kills {
			pause = max(pause/2, 2)
		}
		if err := os.RemoveAll(filepath.Join(dir, "killed")); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command("killed").CombinedOutput(); err != nil {
		t.Fatalf("after %d kills (seed %d): %v\n%s", kills, seed, err, out)
	}
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
