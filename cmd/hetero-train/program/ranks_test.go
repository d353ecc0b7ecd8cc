package program

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// buildRanks builds the program for runs of several ranks on this machine.
func buildRanks(t *testing.T) program {
	t.Helper()
	if err := shm.Available(); err != nil {
		needtest.Missing(t, "shm", err)
	}
	return buildProgram(t)
}

// asRank sets the environment of cmd to that of one rank of a launcher.
func asRank(cmd *exec.Cmd, rank, size, port int) *exec.Cmd {
	cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(size),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port))
	return cmd
}

func (r outcomeOfRun) loss(t *testing.T) float64 {
	t.Helper()
	v, err := r.Loss.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnySplitTrainsAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	finish(t, p.command(filepath.Join(dir, "one"), "train.steps=40"), 0).check(t, exit.Done, "")
	want := resultOf(t, filepath.Join(dir, "one", "run"))
	for _, set := range [][]string{
		{"parallel.ranks=2"},
		{"parallel.ranks=3", "balance.fixed_shares=[5, 2, 1]"},
		{"parallel.ranks=2", "balance.fixed_shares=[0, 8]", "parallel.overlap=false"},
		{"parallel.ranks=2", "parallel.wire_dtype=bf16", "parallel.bucket_cap_mb=0.0"},
	} {
		name := strings.Join(set, " ")
		output := filepath.Join(dir, strings.NewReplacer(" ", "_", "/", "_").Replace(name))
		finish(t, p.command(output, append(set, "train.steps=40")...), 0).check(t, exit.Done, "")
		got := resultOf(t, filepath.Join(output, "run"))
		if got.Steps != 40 || got.SamplesSeen != want.SamplesSeen {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		tolerance := 1e-3 // tolerance: sums of f32 in another order, over 40 AdamW steps
		if strings.Contains(name, "bf16") {
			tolerance = 5e-2 // tolerance: transferred gradients have 8 significant bits
		}
		if a, b := got.loss(t), want.loss(t); math.Abs(a-b) > tolerance*b {
			t.Errorf("%s: final loss %.7g, one rank has %.7g", name, a, b)
		}
		for rank := range int(set[0][len(set[0])-1] - '0') {
			records, damaged, err := runtime.ReadMetrics(filepath.Join(output, "run", "logs", runtime.FileName(rank)))
			if err != nil || damaged != 0 || len(records) != 40 || records[0].Rank != rank {
				t.Errorf("%s: metrics of rank %d: %d records, %d damaged, %v", name, rank, len(records), damaged, err)
			}
		}
	}
}

// Different CPUs round gradients differently, but all ranks must have equal parameters. The ranks compare hashes of
// their parameters at the end of the run.
func TestUnlikeCPUsHoldTheSameParameters(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"device.kind=cpu", "model.channels=[16, 32]", "data.image_size=16", "train.steps=120",
		"train.precision=f32", "parallel.wire_dtype=bf16", "balance.fixed_shares=[5, 3]"}
	p.unlikeRanks(t, dir, "HETERO_CPU_ISA=avx2", set...)
}

// unlikeRanks trains with two ranks on the CPU device. Only rank 1 has the environment variable. unlikeRanks returns
// the result of rank 0.
func (p program) unlikeRanks(t *testing.T, dir, variable string, set ...string) ended {
	t.Helper()
	port := porttest.Free(t)
	other := asRank(p.command(dir, set...), 1, 2, port)
	other.Env = append(other.Env, variable)
	lead, follow := finishBoth(t, asRank(p.command(dir, set...), 0, 2, port), other)
	if lead.code == exit.Usage && strings.Contains(lead.stderr, "libhetero_cpu.so") {
		needtest.Missing(t, "cpu", "no CPU device was built")
	}
	lead.check(t, exit.Done, "")
	follow.check(t, exit.Done, "")
	return lead
}

func TestSettingsThatDifferAreQuotedOnce(t *testing.T) {
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	other := asRank(p.command(dir, "train.precision=bf16", "device.kind=reference"), 1, 2, port)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lead := finish(t, asRank(p.command(dir, "train.precision=f32", "device.kind=reference"), 0, 2, port), 0)
	if code := exitOf(t, other.Wait()); code != exit.Usage {
		t.Errorf("rank 1: got exit code %d, want %d", code, exit.Usage)
	}
	lead.check(t, exit.Usage, `does not agree with rank 0: train.precision is "bf16", but rank 0 has "f32"`)
}

// If model.init_from or train.resume names a run, only the machine of rank 0 needs the folder of this run.
func TestOnlyRankZeroNeedsTheRunOfAName(t *testing.T) {
	t.Parallel()
	p, root := buildRanks(t), t.TempDir()
	finish(t, p.command(root, "experiment.name=first", "train.steps=3"), 0).check(t, exit.Done, "")
	for i, setting := range []string{"model.init_from=first", "train.resume=first"} {
		read := []string{filepath.Join(root, "first"), "setting changed since the checkpoint"}[i]
		port, set := porttest.Free(t), []string{fmt.Sprintf("experiment.name=from%d", i), "train.steps=4", setting}
		other := asRank(p.command(t.TempDir(), set...), 1, 2, port)
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		lead := finish(t, asRank(p.command(root, set...), 0, 2, port), 0)
		if code := exitOf(t, other.Wait()); code != exit.Done {
			t.Errorf("%s: rank 1: got exit code %d", setting, code)
		}
		lead.check(t, exit.Done, read)
	}
}

// An error that all ranks detect must be printed once, in the last line. It must name the key to change.
func TestAnErrorOfAllRanksIsPrintedOnce(t *testing.T) {
	p := buildRanks(t)
	for _, c := range []struct {
		name, cause, key string
		set              []string
		code             int
	}{
		{"too few samples", "got 4 samples, want at least one batch of 8", "data.batch_size",
			[]string{"data.num_samples=4"}, exit.Usage},
		{"a path that does not exist", "no such file or directory", "data.path",
			[]string{"data.dataset=images", "data.path=gone"}, exit.Data},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := finish(t, p.command(t.TempDir(), append(c.set, "parallel.ranks=3")...), 0)
			e.check(t, c.code, c.cause)
			lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
			last := lines[len(lines)-1]
			if strings.Count(e.stderr, c.cause) != 1 || !strings.HasPrefix(last, "hetero-train: error: data ") ||
				!strings.Contains(last, c.cause) || !strings.Contains(last, c.key) {
				t.Errorf("got\n%s\nwant %q once, in the last line, with key %s", e.stderr, c.cause, c.key)
			}
		})
	}
}

func TestTwoRunsOfOneSplitAreBitEqual(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, memory := range []string{"auto", "off"} {
		if memory == "off" && gloo.Available() != nil {
			continue
		}
		var first []byte
		for run := range 2 {
			dir := t.TempDir()
			finish(t, p.command(dir, "train.steps=20", "parallel.ranks=3", "balance.fixed_shares=[4, 1, 3]",
				"parallel.shared_memory="+memory), 0).check(t, exit.Done, "")
			got := clitest.ReadFile(t, filepath.Join(dir, "run", "checkpoints", checkpoint.StepName(20),
				"model.safetensors"))
			if run == 0 {
				first = got
			} else if !bytes.Equal(got, first) {
				t.Errorf("shared memory %s: two runs differ", memory)
			}
		}
	}
}

func TestSlurmStartsRanks(t *testing.T) {
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	ranks := make([]*exec.Cmd, 2)
	for rank := range ranks {
		ranks[rank] = p.command(dir, "train.steps=5")
		ranks[rank].Env = append(os.Environ(), "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
			fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_LOCALID=", rank),
			"SLURM_NODEID=0", "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_TASKS_PER_NODE=2",
			fmt.Sprint("MASTER_PORT=", port))
	}
	if err := ranks[1].Start(); err != nil {
		t.Fatal(err)
	}
	finish(t, ranks[0], 0).check(t, exit.Done, "decided by Slurm")
	if code := exitOf(t, ranks[1].Wait()); code != exit.Done {
		t.Errorf("rank 1: got exit code %d", code)
	}
	if got := resultOf(t, filepath.Join(dir, "run")); got.SamplesSeen != 40 {
		t.Errorf("got %+v, want 5 steps of 8 samples", got)
	}
}

func TestGroupsTrainAsOneRankHoweverTheyAreSplit(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"train.steps=40", "train.grad_accumulation=2", "model.batch_norm=ghost", "model.ghost_group=2"}
	finish(t, p.command(filepath.Join(dir, "one"), set...), 0).check(t, exit.Done, "")
	finish(t, p.command(filepath.Join(dir, "two"), append(set, "parallel.ranks=2")...), 0).check(t, exit.Done, "")
	want, got := resultOf(t, filepath.Join(dir, "one", "run")), resultOf(t, filepath.Join(dir, "two", "run"))
	if a, b := got.loss(t), want.loss(t); math.Abs(a-b) > 1e-3*b {
		t.Errorf("final loss %.7g, one rank has %.7g", a, b)
	}
}

func TestRanksOverTheNetworkTrainAsOneRank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	if err := gloo.Available(); err != nil {
		needtest.Missing(t, "gloo", err)
	}
	finish(t, p.command(filepath.Join(dir, "one"), "train.steps=10"), 0).check(t, exit.Done, "")
	finish(t, p.command(filepath.Join(dir, "two"), "train.steps=10", "parallel.ranks=2", "parallel.shared_memory=off"),
		0).check(t, exit.Done, "")
	want, got := resultOf(t, filepath.Join(dir, "one", "run")), resultOf(t, filepath.Join(dir, "two", "run"))
	if a, b := got.loss(t), want.loss(t); got.Steps != 10 || math.Abs(a-b) > 1e-4*b {
		t.Errorf("final loss %.7g after %d steps, one rank has %.7g", a, got.Steps, b)
	}
}

func TestRanksStoppedBySignalGoOnWithOtherRanks(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	finish(t, p.command(dir, "parallel.ranks=2", "train.steps=100000", "train.log_interval=1"), syscall.SIGTERM).check(
		t, exit.Terminated, "saved")
	var saved outcomeOfRun
	saved.read(t, filepath.Join(dir, "run"))
	finish(t, p.command(dir, "parallel.ranks=3", fmt.Sprintf("train.steps=%d", saved.Steps+5)), 0).check(t, exit.Done,
		"")
	if got := resultOf(t, filepath.Join(dir, "run")); got.Steps != saved.Steps+5 || got.SamplesSeen != 8*got.Steps {
		t.Errorf("got %+v after a stop at step %d", got, saved.Steps)
	}
}

// If a rank is lost, the other ranks must end immediately. If a rank hangs, the other ranks must end after the
// time-out. All processes must end, and the last checkpoint must be valid.
func TestALostRankIsNamed(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, c := range []struct {
		name    string
		victim  int
		signal  syscall.Signal
		timeout int    // parallel.timeout_seconds
		says    string // expected output of every surviving rank
	}{
		{"rank 0 is killed", 0, syscall.SIGKILL, 60, "rank 0"},
		{"rank 1 is killed", 1, syscall.SIGKILL, 60, "rank 1"},
		{"rank 2 hangs", 2, freeze, 2, "rank 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for attempt := 1; ; attempt++ {
				faults := p.loseRank(t, c.victim, c.signal, c.timeout, c.says)
				if len(faults) == 0 {
					return
				}
				if c.signal == syscall.SIGKILL || attempt == 3 {
					t.Fatal(strings.Join(faults, "\n"))
				}
				// The time-out is two seconds. On a busy machine, another rank can exceed it, so the test tries again.
				t.Logf("attempt %d: %s", attempt, strings.Join(faults, "\n"))
				c.timeout *= 5
			}
		})
	}
}

// loseRank starts three ranks, and sends a signal to one of them after the first checkpoint. It returns the faults of
// the other ranks.
func (p program) loseRank(t *testing.T, victim int, signal syscall.Signal, timeout int, says string) (faults []string) {
	t.Helper()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	dir, port := t.TempDir(), porttest.Free(t)
	set := []string{"train.steps=1000000", fmt.Sprint("parallel.timeout_seconds=", timeout),
		"parallel.rendezvous_timeout_seconds=60"}
	ranks := make([]*exec.Cmd, 3)
	messages := make([]bytes.Buffer, len(ranks))
	for rank := range ranks {
		ranks[rank] = asRank(p.command(dir, set...), rank, len(ranks), port)
		ranks[rank].Stderr = &messages[rank]
		if err := ranks[rank].Start(); err != nil {
			t.Fatal(err)
		}
		defer ranks[rank].Process.Kill()
	}
	checkpoints := filepath.Join(dir, "run", "checkpoints")
	saved := func() bool {
		c, _, err := checkpoint.Latest(checkpoints)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	// The signal must hit a step or a save.
	for limit := time.Now().Add(patience); !saved(); time.Sleep(5 * time.Millisecond) {
		if ended := processEnded(ranks[0].Process.Pid); ended || time.Now().After(limit) {
			for _, cmd := range ranks {
				cmd.Process.Kill()
				cmd.Wait()
			}
			fault("no checkpoint, rank 0 has ended: %v\n%s", ended, messages[0].String())
			return faults
		}
	}
	ranks[victim].Process.Signal(signal)
	for rank, cmd := range ranks {
		if rank == victim {
			continue
		}
		if code := exitOf(t, cmd.Wait()); code != exit.Communication {
			fault("rank %d: got exit code %d, want %d", rank, code, exit.Communication)
		}
		if !strings.Contains(messages[rank].String(), says) {
			fault("rank %d does not say %q:\n%s", rank, says, messages[rank].String())
		}
	}
	ranks[victim].Process.Kill()
	ranks[victim].Wait()
	if signal == freeze && !strings.Contains(messages[0].String(), "is waiting in operation") {
		fault("no message names the phase of the ranks:\n%s", messages[0].String())
	}
	found, skipped, err := checkpoint.Latest(checkpoints)
	if err != nil || len(skipped) > 0 {
		t.Fatalf("checkpoints: %v, skipped %v", err, skipped)
	}
	defer found.Close()
	finish(t, p.command(dir, fmt.Sprintf("train.steps=%d", found.State.Step+3)), 0).check(t, exit.Done, "")
	return faults
}

func TestRanksThatDoNotBelongTogetherAreRefused(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, c := range []struct {
		name       string
		rank, size int // RANK and WORLD_SIZE of the second process
		set        string
		wait       int // parallel.rendezvous_timeout_seconds
		code       int // expected exit code of rank 0
		says       string
	}{
		{"other settings", 1, 2, "optimizer.lr=0.5", 60, exit.Usage, "optimizer.lr"},
		{"other weather", 1, 2, "lab.weather=../../../scripts/weather/half_speed.txt", 60, exit.Usage, "weather"},
		{"another world size", 1, 3, "", 60, exit.Usage, "3"},
		{"the same rank twice", 0, 2, "", 60, exit.Usage, ""},
		{"no rank", 1, 2, "data.path=gone", 3, exit.Communication, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := porttest.Free(t)
			set := []string{"train.steps=3", fmt.Sprint("parallel.rendezvous_timeout_seconds=", c.wait)}
			second := append([]string{}, set...)
			if c.set != "" {
				second = append(second, c.set)
			}
			other := asRank(p.command(t.TempDir(), second...), c.rank, c.size, port)
			if c.rank == 0 { // only one of the two processes can open the port; the other one ends immediately
				both, first := []*exec.Cmd{other, asRank(p.command(t.TempDir(), set...), 0, 2, port)},
					make(chan *exec.Cmd, 2)
				for _, cmd := range both {
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					go func() {
						_ = cmd.Wait() // ProcessState contains the exit code
						first <- cmd
					}()
				}
				if code := (<-first).ProcessState.ExitCode(); code != c.code {
					t.Errorf("the first process that ended: got exit code %d, want %d", code, c.code)
				}
				for _, cmd := range both {
					cmd.Process.Kill()
				}
				<-first
				return
			}
			done := make(chan error, 1)
			go func() { done <- other.Run() }()
			lead := finish(t, asRank(p.command(t.TempDir(), set...), 0, 2, port), 0)
			<-done
			lead.check(t, c.code, c.says)
		})
	}
}
