package supervisor

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestRanksDieWithTheirSupervisor(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), superviseVariable+"=wait;stubborn,wait;wait")
		out := &buffer{}
		command.Stdout = out
		command.WaitDelay = time.Second
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		pids := out.waitFor(t, 3)
		if err := command.Process.Signal(signal); err != nil { // no process forwards SIGTERM, so it kills too
			t.Fatal(err)
		}
		_ = command.Wait()
		noneLeft(t, pids)
	}
}
