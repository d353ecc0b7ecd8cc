package program

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// flipInProcess stops a process, flips one random bit in every occurrence of pattern in its writable memory, and
// continues it. It returns the number of occurrences.
func flipInProcess(t *testing.T, pid int, pattern []byte, random *rand.Rand) int {
	t.Helper()
	sendTo(pid, freeze)
	defer sendTo(pid, thaw)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0 // the process has ended
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		needtest.Missing(t, "ptrace", err)
	}
	defer mem.Close()
	var places []int64
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n != 3 || !strings.HasPrefix(mode, "rw") ||
			to-from > 1<<28 {
			continue
		}
		text := make([]byte, to-from)
		n, _ := mem.ReadAt(text, from) // an error after some bytes means that the rest of the range is unreadable
		for at := 0; ; at++ {
			next := bytes.Index(text[at:n], pattern)
			if next < 0 {
				break
			}
			at += next
			places = append(places, from+int64(at))
		}
	}
	at := random.IntN(len(pattern))
	flipped := []byte{pattern[at] ^ 1<<random.IntN(8)}
	for _, place := range places { // all places are changed, because most of them are unused copies
		if _, err := mem.WriteAt(flipped, place+int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	return len(places)
}

// A bit of the weights flips in the memory of a rank during a run. No checkpoint may contain this error, and the
// resumed run must be bit-equal to a run without the fault.
// The learning rate is too small to change a weight. The test can therefore find the weights in memory, and a flipped
// bit stays flipped.
func TestABitThatFlipsInARank(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	const interval = 10
	steps, trials := int64(160), 4
	if needtest.Hostile.On() {
		steps, trials = 300, 24
	}
	set := []string{"balance.policy=none", "train.log_interval=1", "train.eval_interval=0", "optimizer.lr=1e-30",
		"optimizer.weight_decay=0",
		fmt.Sprintf("checkpoint.interval_steps=%d", interval), "checkpoint.keep=1000",
		fmt.Sprintf("train.steps=%d", steps)}
	command := func(folder string, ranks int) *exec.Cmd {
		return p.command(filepath.Join(dir, folder), append(set, fmt.Sprintf("parallel.ranks=%d", ranks))...)
	}
	saved := func(folder, name, file string) []byte {
		return clitest.ReadFile(t, filepath.Join(dir, folder, "run", "checkpoints", name, file))
	}
	whole := map[int]string{2: "whole2", 3: "whole3"}
	for ranks, folder := range whole {
		finish(t, command(folder, ranks), 0).check(t, exit.Done, "")
	}
	first, err := checkpoint.Load(filepath.Join(dir, "whole2", "run", "checkpoints", checkpoint.StepName(interval)))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	largest := slices.MaxFunc(first.Model.Tensors(), func(a, b checkpoint.Info) int {
		return cmp.Compare(a.Bytes(), b.Bytes())
	})
	weights, err := first.Model.Read(largest.Name)
	if err != nil {
		t.Fatal(err)
	}
	found, accepted, wrong := 0, 0, 0
	for trial := range trials {
		random := rand.New(rand.NewPCG(uint64(trial), 2))
		ranks, folder := 2+trial%2, fmt.Sprint("trial", trial)
		victim, after := random.IntN(ranks), 10+random.Int64N(steps/2)
		trained := command(folder, ranks)
		places := 0
		run := finishAfterStep(t, trained, func() {
			for stepsRecorded(t, filepath.Join(dir, folder)) < after && !processEnded(trained.Process.Pid) {
				time.Sleep(time.Millisecond)
			}
			if pids := startedBy(t, trained.Process.Pid); len(pids) == ranks {
				places = flipInProcess(t, pids[victim], weights.Data[:min(len(weights.Data), 48)], random)
			}
		})
		if strings.Contains(run.stderr, "replicas differ") || strings.Contains(run.stderr, "changed in memory") {
			found++
		}
		names, err := checkpoint.List(filepath.Join(dir, folder, "run", "checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		check := func(names ...string) {
			for _, name := range names {
				accepted++
				for _, file := range []string{"model.safetensors", "optimizer.safetensors"} {
					if !bytes.Equal(saved(folder, name, file), saved(whole[ranks], name, file)) {
						wrong++
						t.Errorf(
							"trial %d, %d ranks, rank %d, step %d: %s of %s is accepted and wrong: exit code %d, %s",
							trial, ranks, victim, after, file, name, run.code, run.stderr)
					}
				}
			}
		}
		check(names...)
		if run.code != exit.Done {
			finish(t, command(folder, ranks), 0).check(t, exit.Done, "")
			check(checkpoint.StepName(steps))
		}
		t.Logf("trial %d: %d ranks, rank %d, about step %d, %d places: exit code %d, %d checkpoints", trial, ranks,
			victim, after, places, run.code, len(names))
	}
	t.Logf("%d trials: %d differences found, %d checkpoints accepted, %d of them wrong", trials, found, accepted, wrong)
	if found == 0 {
		t.Error("no trial found a difference: the test proves nothing")
	}
}

// Commands that are repeated or refused after the end of a run must not change the state that status shows.
func TestStatusAfterLaterCommands(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=20"), 0).check(t, exit.Done, "")
	status := func() string {
		text, err := exec.Command(p.path, "status", filepath.Join(dir, "run")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		return first
	}
	want := status()
	if !strings.Contains(want, "finished") {
		t.Fatalf("got %q, want that the run is finished", want)
	}
	for _, later := range []struct {
		set  string
		code int
	}{{"train.steps=20", exit.Done}, {"optimizer.lr=0.5", exit.Usage}} {
		// The commands run at a later second, because the state must not depend on their times.
		time.Sleep(1100 * time.Millisecond)
		cmd := p.command(dir, "train.steps=20", later.set)
		text, err := cmd.CombinedOutput()
		if code := exitOf(t, err); code != later.code {
			t.Errorf("%s: got exit code %d, want %d: %s", later.set, code, later.code, text)
		}
		if got := status(); got != want {
			t.Errorf("after %s: got %q, want %q", later.set, got, want)
		}
	}
}
