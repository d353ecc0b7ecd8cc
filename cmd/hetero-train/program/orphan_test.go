package program

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// The supervisor has no state of the run. If it is killed, its ranks must save all steps and end, and no rank may
// remain.
func TestAKilledSupervisorCostsNoStep(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needtest.Missing(t, "system", "only Linux sends the ranks a signal when their supervisor ends")
	}
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"parallel.ranks=2", "balance.policy=none", "train.log_interval=1", "train.eval_interval=0",
		"checkpoint.interval_steps=0"}
	cmd := p.command(dir, append(set, "train.steps=1000000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for stepsRecorded(t, dir) < 20 && !processEnded(cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	pids := startedBy(t, cmd.Process.Pid)
	if len(pids) != 2 {
		t.Fatalf("got ranks %v, want two", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error states that the process was killed
	for _, pid := range pids {
		for deadline := time.Now().Add(time.Minute); !processEnded(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("rank %d is left behind", pid)
			}
		}
	}
	step, ok := checkpoint.NewestStep(filepath.Join(dir, "run", "checkpoints"))
	var saved outcomeOfRun
	if saved.read(t, filepath.Join(dir, "run")); !ok || saved.Steps != step || step < 20 ||
		saved.Exit != exit.Terminated {
		t.Fatalf("got %d steps, exit code %d and a checkpoint of step %d, want the same step, at least 20, and %d",
			saved.Steps, saved.Exit, step, exit.Terminated)
	}
}
