//go:build linux

package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

var lastStep = regexp.MustCompile(`(?m)^step (\d+)/`)

// stepOf returns the last step that a run has printed.
func stepOf(w *watched) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text.Bytes()
	found := lastStep.FindAllSubmatch(text[max(0, len(text)-4096):], -1)
	if len(found) == 0 {
		return 0
	}
	step, _ := strconv.Atoi(string(found[len(found)-1][1])) // the expression matches digits
	return step
}

// treeCPU returns the CPU time of a process and of its children, and the sum of their resident memory in bytes.
func treeCPU(t *testing.T, root int) (cpu time.Duration, resident int64) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, ok := strings.Cut(string(text), ") ") // the name may contain spaces
		fields := strings.Fields(rest)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if !ok || len(fields) < 22 || pid != root && fields[1] != strconv.Itoa(root) {
			continue
		}
		number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
		cpu += time.Duration(number(11)+number(12)) * time.Second / 100 // ticks of 1/100 s
		resident += number(21) * int64(os.Getpagesize())
	}
	return cpu, resident
}

// Strangers may cost the ranks at most 5 % of their CPU time, and 32 MB of memory (rows S1 and S3). The strangers of
// this test use the same CPUs, so the test compares the CPU time of the processes of rank 0 for a step. Phases with and
// without strangers alternate.
func TestStrangersCostLittle(t *testing.T) {
	needtest.Hostile.Need(t, "trains for minutes under attack")
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	set := []string{"train.steps=100000000", "train.log_interval=1", "checkpoint.interval_steps=0",
		"train.eval_interval=0"}
	first := watch(t, nodeOf(p, dir, 0, port, set...))
	second := watch(t, nodeOf(p, dir, 1, port, set...))
	first.await(t, "step 300/")
	const phase, rounds, rate = 10 * time.Second, 6, 1000
	type figures struct{ cpu, wall []float64 } // ms for a step
	var quiet, attacked figures
	var connections int64
	var largest [2]int64 // memory without and with strangers
	for round := range 2 * rounds {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan int64, 1)
		to := &quiet
		if round%2 == 1 {
			to = &attacked
			go func() { done <- besiege(ctx, fmt.Sprintf("127.0.0.1:%d", port), rate) }()
			time.Sleep(time.Second)
		} else {
			done <- 0
		}
		step, began := stepOf(first), time.Now()
		used, _ := treeCPU(t, first.cmd.Process.Pid)
		time.Sleep(phase)
		after, resident := treeCPU(t, first.cmd.Process.Pid)
		steps := float64(stepOf(first) - step)
		if steps < 100 {
			t.Fatalf("%v steps in %v: the trial is void", steps, phase)
		}
		to.cpu = append(to.cpu, (after-used).Seconds()*1000/steps)
		to.wall = append(to.wall, time.Since(began).Seconds()*1000/steps)
		largest[round%2] = max(largest[round%2], resident)
		stop()
		connections += <-done
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	cpu := median(attacked.cpu)/median(quiet.cpu) - 1
	t.Logf("CPU time of rank 0 for a step: %.3f ms, under attack %.3f ms (%+.1f %%)", median(quiet.cpu),
		median(attacked.cpu), 100*cpu)
	t.Logf("a step: %.3f ms, under attack %.3f ms (%+.1f %%), with the CPU time of the strangers", median(quiet.wall),
		median(attacked.wall), 100*(median(attacked.wall)/median(quiet.wall)-1))
	t.Logf("%d connections; memory %+.1f MB", connections, float64(largest[1]-largest[0])/1e6)
	if cpu > 0.05 {
		t.Errorf("strangers cost rank 0 %.1f %% of its CPU time, want at most 5 %%", 100*cpu)
	}
	if largest[1]-largest[0] > 32<<20 {
		t.Errorf("the memory grew by %d bytes under attack", largest[1]-largest[0])
	}
	first.cmd.Process.Signal(os.Interrupt)
	first.end(t, exit.Interrupted, "")
	second.end(t, exit.Terminated, "") // of the signal to another rank
}
