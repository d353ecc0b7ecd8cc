package program

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// startedBy returns the process ids of the ranks that a supervisor started, by rank.
func startedBy(t *testing.T, supervisor int) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", supervisor))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		for text := range strings.FieldsSeq(string(clitest.ReadFile(t, task))) {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// If a rank of a run is killed, the run must save all steps that all ranks completed. The resumed run must be bit-equal
// to a run without the fault.
//
// Go runs the parallel subtests of a parallel test after all other tests of the package. These subtests therefore run
// one after another.
func TestALostRankCostsNoStep(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, c := range []struct {
		name string
		set  []string
	}{
		{"killed", nil},
		{"killed, over the network", []string{"parallel.shared_memory=off"}},
		{"killed, groups", []string{"model.batch_norm=ghost", "model.ghost_group=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "network") && gloo.Available() != nil {
				needtest.Missing(t, "gloo", gloo.Available())
			}
			lostRankCostsNoStep(t, p, syscall.SIGKILL, c.set...)
		})
	}
}

// A rank that hangs must count as lost after parallel.timeout_seconds.
func TestAFrozenRankCostsNoStep(t *testing.T) {
	t.Parallel()
	lostRankCostsNoStep(t, buildRanks(t), freeze, "parallel.timeout_seconds=12")
}

// lostRankCostsNoStep sends a signal to a rank of a run. The run must lose no step.
func lostRankCostsNoStep(t *testing.T, p program, signal syscall.Signal, settings ...string) {
	t.Helper()
	dir := t.TempDir()
	set := append(slices.Clone(settings), "parallel.ranks=2", "balance.policy=none", "train.log_interval=1",
		"train.eval_interval=0", "checkpoint.interval_steps=0")
	command := func(folder string, steps int64) *exec.Cmd {
		return p.command(filepath.Join(dir, folder), append(set, fmt.Sprintf("train.steps=%d", steps))...)
	}
	cmd := command("lost", 1_000_000)
	lost := finishAfterStep(t, cmd, func() {
		for stepsRecorded(t, filepath.Join(dir, "lost")) < 20 && !processEnded(cmd.Process.Pid) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) // a random time within a step
		if pids := startedBy(t, cmd.Process.Pid); len(pids) == 2 {
			sendTo(pids[1], signal)
		}
	})
	step, ok := checkpoint.NewestStep(filepath.Join(dir, "lost", "run", "checkpoints"))
	lost.check(t, exit.Communication, fmt.Sprintf("the run continues from step %d with: %s -c %s", step, p.path,
		p.config))
	var saved outcomeOfRun
	if saved.read(t, filepath.Join(dir, "lost", "run")); !ok || saved.Steps != step || step < 20 {
		t.Fatalf("got %d steps and a checkpoint of step %d, want the same step, at least 20", saved.Steps, step)
	}
	end := step + 40
	finish(t, command("lost", end), 0).check(t, exit.Done, "")
	finish(t, command("whole", end), 0).check(t, exit.Done, "")
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		at := filepath.Join("run", "checkpoints", checkpoint.StepName(end), name)
		if !bytes.Equal(clitest.ReadFile(t, filepath.Join(dir, "whole", at)),
			clitest.ReadFile(t, filepath.Join(dir, "lost", at))) {
			t.Errorf("%s differs from that of a run that lost no rank", name)
		}
	}
}

// A rank that is silent for less than parallel.timeout_seconds must not count as lost.
func TestARankThatWakesInTimeIsNotLost(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	cmd := p.command(dir, "parallel.ranks=2", "train.steps=1000000", "train.log_interval=1", "train.eval_interval=0",
		"parallel.timeout_seconds=120")
	var before, after int64
	out := finishAfterStep(t, cmd, func() {
		pids := startedBy(t, cmd.Process.Pid)
		sendTo(pids[1], freeze)
		before = stepsRecorded(t, dir)
		time.Sleep(12 * time.Second)
		sendTo(pids[1], thaw)
		for after = before; after < before+20 && !processEnded(cmd.Process.Pid); after = stepsRecorded(t, dir) {
			time.Sleep(20 * time.Millisecond)
		}
		cmd.Process.Signal(syscall.SIGTERM)
	})
	out.check(t, exit.Terminated, "saved")
	if after < before+20 {
		t.Errorf("%d steps before the pause of rank 1, %d after it: the run did not go on", before, after)
	}
}

// All processes of a run pause for longer than each time-out. This must not end the run.
func TestAPauseOfTheWholeJobEndsNothing(t *testing.T) {
	t.Parallel()
	pausesEndNothing(t, "parallel.shared_memory=auto")
}

// The same pause must not end a run over Gloo, the communicator between machines.
func TestAPauseOfTheWholeJobOverGlooEndsNothing(t *testing.T) {
	t.Parallel()
	if gloo.Available() != nil {
		needtest.Missing(t, "gloo", gloo.Available())
	}
	pausesEndNothing(t, "parallel.shared_memory=off")
}

func pausesEndNothing(t *testing.T, set string) {
	t.Helper()
	p := buildRanks(t)
	for _, timeout := range []time.Duration{6 * time.Second, 30 * time.Second} { // longer on a busy machine
		if pauseOfTheWholeJob(t, p, set, timeout, timeout > 6*time.Second) {
			return
		}
	}
	t.Fatal("the machine has too much other load: no pause reached all processes within seconds")
}

// pauseOfTheWholeJob stops all processes of a run, and continues them. It returns false if sending the signals took
// longer than a sixth of the time-out, because the result is then invalid.
// On a busy machine, a single rank can miss the time-out of heartbeats. Unless this attempt is the last one,
// pauseOfTheWholeJob therefore returns false if a rank was lost.
func pauseOfTheWholeJob(t *testing.T, p program, set string, timeout time.Duration, last bool) (valid bool) {
	t.Helper()
	dir := t.TempDir()
	cmd := p.command(dir, "parallel.ranks=2", "train.steps=1000000", "train.log_interval=1", "train.eval_interval=0",
		fmt.Sprint("parallel.timeout_seconds=", timeout.Seconds()), set)
	var before, after int64
	var apart time.Duration
	paused := finishAfterStep(t, cmd, func() {
		all := append(startedBy(t, cmd.Process.Pid), cmd.Process.Pid)
		signal := func(s syscall.Signal) {
			begun := time.Now()
			for _, pid := range all {
				sendTo(pid, s)
			}
			apart = max(apart, time.Since(begun))
		}
		signal(freeze)
		before = stepsRecorded(t, dir)
		time.Sleep(timeout * 4 / 3) // longer than the time-outs of heartbeats and of operations
		signal(thaw)
		for after = before; after < before+20 && !processEnded(cmd.Process.Pid); after = stepsRecorded(t, dir) {
			time.Sleep(20 * time.Millisecond)
		}
		cmd.Process.Signal(syscall.SIGTERM)
	})
	if apart > timeout/6 || paused.code == exit.Communication && !last {
		t.Logf("the pauses began up to %v apart, exit code %d:\n%s", apart, paused.code, paused.stderr)
		return false
	}
	paused.check(t, exit.Terminated, "saved")
	if after < before+20 {
		t.Errorf("%d steps before the pause, %d after it: it did not go on", before, after)
	}
	return true
}

// stepsRecorded returns the number of steps in the metrics file of rank 0.
func stepsRecorded(t *testing.T, dir string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run", "logs", runtime.FileName(0)))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return int64(bytes.Count(text, []byte("\n")))
}

// processEnded reports whether a child process has ended. The parent may not have waited for it yet.
func processEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// Without a supervisor, rank 0 must explain how to resume. If rank 0 is lost, the other ranks must name the newest
// checkpoint.
func TestRanksOfALauncherSayHowToGoOn(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for victim := range 2 {
		dir, port := t.TempDir(), porttest.Free(t)
		set := []string{"train.steps=1000000", "train.log_interval=1", "checkpoint.interval_steps=50",
			"train.eval_interval=0"}
		ranks := []*exec.Cmd{asRank(p.command(dir, set...), 0, 2, port), asRank(p.command(dir, set...), 1, 2, port)}
		var messages bytes.Buffer
		ranks[1].Stderr = &messages
		if err := ranks[1].Start(); err != nil {
			t.Fatal(err)
		}
		lead := finishAfterStep(t, ranks[0], func() {
			for { // waits until a checkpoint exists
				if _, ok := checkpoint.NewestStep(filepath.Join(dir, "run", "checkpoints")); ok {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			ranks[victim].Process.Kill()
		})
		other := ended{exitOf(t, ranks[1].Wait()), "", messages.String()}
		survivor := []ended{other, lead}[victim]
		step, _ := checkpoint.NewestStep(filepath.Join(dir, "run", "checkpoints"))
		survivor.check(t, exit.Communication, fmt.Sprintf("the run continues from step %d with: %s -c %s", step, p.path,
			p.config))
		survivor.check(t, exit.Communication, "(under the same launcher)")
	}
}
