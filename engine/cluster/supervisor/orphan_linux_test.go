package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestRanksDieWithTheirSupervisor(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		endSupervisor(t, signal, "wait;orphan 300ms,stubborn,wait;wait") // it is not forwarded, so it kills too
	}
}

// init asks the kernel to send no signal when the supervisor ends. This setting belongs to the main thread, which runs
// the initialization of packages.
func init() {
	if strings.Contains(os.Getenv(planVariable), unheard) {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// After SIGTERM, a rank holds the lifeline to save. If it then hangs in its step, it must still end within its time
// limit.
func TestAHungRankDiesWithItsSupervisor(t *testing.T) {
	endSupervisor(t, syscall.SIGKILL, "hold,orphan 300ms,stubborn,wait;wait")
}

// endSupervisor starts a supervisor of ranks with a plan, sends it a signal, and waits for the end of the ranks.
func endSupervisor(t *testing.T, signal syscall.Signal, plan string, environment ...string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(append(os.Environ(), superviseVariable+"="+plan), environment...)
	out := &buffer{}
	command.Stdout = out
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pids := out.waitFor(t, strings.Count(plan, ";")+1)
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	noneLeft(t, pids)
}

// After the end of its supervisor, a rank must get SIGTERM and time to save, even if the kernel sends no signal. The
// time limit must not end the save.
func TestARankSavesAfterTheEndOfItsSupervisor(t *testing.T) {
	for _, plan := range []string{
		"orphan 1m,save 75 mark saved;wait",
		"hold,late,orphan 1ms,save 75 mark saved 1500ms;wait",
		unheard + ",orphan 1m,save 75 mark saved;orphan 1m,wait",
	} {
		marks := t.TempDir()
		endSupervisor(t, syscall.SIGKILL, plan, marksVariable+"="+marks)
		if _, err := os.Stat(filepath.Join(marks, "saved")); err != nil {
			t.Errorf("%q: the rank has not saved: %v", plan, err)
		}
	}
}

func TestRanksHaveAHigherOOMAdjustment(t *testing.T) {
	own := adjustmentOf(t, os.Getpid())
	want := min(own+rankAdjustment, highestAdjustment)
	if own == exempt || want == own {
		needtest.Missing(t, "system",
			fmt.Sprintf("this process has oom_score_adj %d, so ranks cannot have a higher one", own))
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), superviseVariable+"=wait;wait")
	out := &buffer{}
	command.Stdout, command.WaitDelay = out, time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for _, pid := range out.waitFor(t, 2) {
		// The rank can print before the supervisor has changed the rank's oom_score_adj.
		for deadline := time.Now().Add(patience); adjustmentOf(t, pid) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("process %d: got oom_score_adj %d, want %d; the supervisor has %d", pid, adjustmentOf(t, pid),
					want, own)
				break
			}
		}
	}
}

func adjustmentOf(t *testing.T, pid int) int {
	t.Helper()
	got, err := adjustment(pid)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
