//go:build !linux

package program

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// This file lets the tests compile on systems other than Linux. Tests that need one of these functions skip or fail
// there. The comments are in system_linux_test.go.

const (
	freeze = syscall.Signal(19)
	thaw   = syscall.Signal(18)
)

func sendTo(pid int, s syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(s)
}

func runsAs(*exec.Cmd, uint32) {}

func diesWithTest(*exec.Cmd) {}

func hasOwnMounts(*exec.Cmd) {}

func mountTmpfs(string, string) error { return errors.ErrUnsupported }

func mountReadOnly(string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func ownNice() (int, error) { return 0, errors.ErrUnsupported }

func setPipeSize(*os.File, int) error { return errors.ErrUnsupported }

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	needtest.Missing(t, "system", "no pseudo-terminals on "+runtime.GOOS)
	return nil, nil
}

func resize(*os.File, int, int) error { return errors.ErrUnsupported }
