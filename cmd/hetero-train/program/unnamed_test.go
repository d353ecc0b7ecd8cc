package program

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// unnamed is the configuration of a small run without experiment.name. An epoch has 10 steps.
const unnamed = `
[device]
kind = "reference"
[model]
name = "simple_cnn"
channels = [3]
[data]
dataset = "synthetic_image"
batch_size = 8
num_samples = 80
image_size = 8
[train]
steps = 20
[profile]
tensorboard_interval = 0
`

// sweep is a series of runs in one folder, with changed settings on the command line.
type sweep struct {
	t      *testing.T
	p      program
	output string
	more   []string // arguments that every run gets
}

// All ranks must follow rank 0's decision to rename the old folder. No rank may write into the old folder.
func TestSeveralRanksGiveWayTogether(t *testing.T) {
	t.Parallel()
	buildRanks(t)
	s := newSweep(t, "--nproc-per-node", "2")
	s.run(exit.Done, "done: 20 steps")
	old := string(clitest.ReadFile(t, filepath.Join(s.output, "distributed_training", "logs", "rank_1.log")))
	s.run(exit.Done, "is finished")
	s.run(exit.Done, "done: 20 steps", "--lr", "0.2", "--log-level", "debug")
	s.steps("distributed_training-1", 20, "0.05")
	s.steps("distributed_training", 20, "0.2")
	if now := string(
		clitest.ReadFile(t, filepath.Join(s.output, "distributed_training-1", "logs", "rank_1.log"))); now != old {
		t.Errorf("rank 1 wrote into the log of the old run:\n%s", now)
	}
	s.run(exit.Done, "done: 30 steps", "--lr", "0.2", "--set", "train.steps=30", "--nproc-per-node", "1")
	e := s.run(exit.Usage, "data.batch_size was 8, now 16 (--batch-size counts the samples of each of the 2 ranks; --set data.batch_size=8 keeps the global batch size)",
		"--lr", "0.2", "--batch-size", "8", "--resume", filepath.Join(s.output, "distributed_training"), "--set",
		"train.steps=40")
	if strings.Contains(e.stderr, "done:") {
		t.Error("a step was trained")
	}
}

// balance compare must use separate folders, even if the settings name a run.
func TestComparisonsLeaveRunsAlone(t *testing.T) {
	t.Parallel()
	buildRanks(t)
	s := newSweep(t)
	logs := filepath.Join(s.output, "logs")
	for _, named := range [][]string{nil, {"--set", "experiment.name=mine", "--set", "experiment.log_dir=" + logs}} {
		s.run(exit.Done, "done: 20 steps", named...)
		before := snapshot(t, s.output)
		args := append([]string{"balance", "compare", "-c", s.p.config, "--rounds", "3", "--block", "3", "--policies",
			"none,dynamic", "--set", "experiment.output_dir=" + s.output, "--set", "parallel.ranks=2"}, named...)
		for range 2 {
			finish(t, exec.Command(s.p.path, args...), 0).check(t, exit.Done, "")
		}
		after := snapshot(t, s.output)
		for line := range strings.Lines(before) {
			if !strings.Contains(after, line) {
				t.Errorf("%v: a comparison changed %s", named, line)
			}
		}
	}
	for _, name := range []string{"balance_compare", "balance_compare-1", "mine-balance_compare",
		"mine-balance_compare-1"} {
		if !parts.Exists(filepath.Join(s.output, name, "results", "result.json")) {
			t.Errorf("no comparison in %s", name)
		}
	}
}

// Each trial starts a run with another learning rate, which renames the folder of the previous run. The trial kills the
// process at a random time. No run may be lost.
func TestAMoveThatIsKilledKeepsEveryRun(t *testing.T) {
	t.Parallel()
	trials := 6
	if needtest.Hostile.On() {
		trials = 200
	}
	s := newSweep(t, "--set", "train.steps=3")
	s.run(exit.Done, "done: 3 steps")
	begun := time.Now()
	s.run(exit.Done, "done: 3 steps", "--lr", "0.9")
	whole := time.Since(begun)
	finished := 2
	for n := range trials {
		cmd := s.command("--lr", fmt.Sprint(float64(n+1)/1000))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Float64() * float64(whole)))
		cmd.Process.Kill()
		if cmd.Wait() == nil {
			finished++
		}
		runs, _ := filepath.Glob(filepath.Join(s.output, "*", "checkpoints", "step-00000003", "MANIFEST"))
		if len(runs) < finished {
			t.Fatalf("trial %d: got %d finished runs, want at least %d", n, len(runs), finished)
		}
		finished = len(runs)
	}
	s.run(exit.Done, "done: 3 steps", "--lr", "0.7")
	s.steps("distributed_training", 3, "0.7")
}

// Runs of a sweep may train at the same time. Each run must have its own folder, and the old run must exist exactly
// once.
func TestUnnamedRunsTrainSideBySide(t *testing.T) {
	t.Parallel()
	s := newSweep(t)
	s.run(exit.Done, "done: 20 steps")
	rates := []string{"0.2", "0.3", "0.4"}
	ends := make([]ended, len(rates))
	var all sync.WaitGroup
	for i, rate := range rates {
		cmd := s.command("--lr", rate, "--set", "train.steps=300")
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			if ends[i].stderr = string(out); err != nil {
				ends[i].code = -1
			}
		})
	}
	all.Wait()
	renamed := 0
	for i, e := range ends {
		if e.code != exit.Done {
			t.Fatalf("a run failed:\n%s", e.stderr)
		}
		_, name, found := strings.Cut(e.stderr, "this command resumes it with --set experiment.name=")
		if !found {
			s.steps("distributed_training", 300, rates[i])
			continue
		}
		renamed++
		name, _, _ = strings.Cut(name, "\n")
		s.steps(name, 300, rates[i])
		s.run(exit.Done, "train.steps = 300 ended the run", "--lr", rates[i], "--set", "train.steps=300", "--set",
			"experiment.name="+name)
	}
	folders, err := filepath.Glob(filepath.Join(s.output, "distributed_training*"))
	if err != nil || len(folders) != 1+len(rates) || renamed == 0 || renamed == len(rates) {
		t.Errorf("got %d runs with a name of their own, and the folders %q", renamed, folders)
	}
	old := 0
	for _, dir := range folders {
		if resultOf(t, dir).Steps == 20 {
			old++
		}
	}
	if old != 1 {
		t.Errorf("the old run exists %d times in %q", old, folders)
	}
}

// The supervisor chooses the name of an unnamed run. Its ranks, and a command that resumes the run, must use this name.
func TestRanksOfAnUnnamedRunHaveItsName(t *testing.T) {
	t.Parallel()
	if err := shm.Available(); err != nil {
		needtest.Missing(t, "shm", err)
	}
	s := newSweep(t)
	first := watch(t, s.command("--set", "train.steps=1000000", "--set", "train.log_interval=1"))
	first.await(t, "step 3/")
	e := s.run(exit.Done, "done: 20 steps", "--lr", "0.2", "--set", "parallel.ranks=2")
	if n := strings.Count(e.stderr, "so this run is named distributed_training-1"); n != 1 {
		t.Errorf("got the name %d times:\n%s", n, e.stderr)
	}
	s.steps("distributed_training-1", 20, "0.2")
	first.cmd.Process.Signal(syscall.SIGTERM)
	first.cmd.Wait()
}

// The program may not rename the folder of another user's run. This run must remain unchanged, and the error must state
// how to continue.
func TestAFolderOfSomebodyElseCannotBeMoved(t *testing.T) {
	t.Parallel()
	needtest.Root(t, "to become another user")
	s := newSweep(t)
	dir, built := s.p.forOtherUsers(t)
	file := filepath.Join(dir, "run.toml")
	s.output = filepath.Join(dir, "experiments")
	if err := os.WriteFile(file, []byte(unnamed), 0o644); err != nil {
		t.Fatal(err)
	}
	s.p = program{path: built, config: file}
	s.run(exit.Done, "done: 20 steps")
	const nobody = 65534
	run := filepath.Join(s.output, "distributed_training")
	err := filepath.WalkDir(run, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	})
	if err != nil { // the user owns the folder of the run, but not the folder above it
		t.Fatal(err)
	}
	before := snapshot(t, s.output)
	cmd := s.command("--lr", "0.2")
	cmd.Dir = dir
	runsAs(cmd, nobody)
	finish(t, cmd, 0).check(t, exit.Usage, "move aside")
	if after := snapshot(t, s.output); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
}
