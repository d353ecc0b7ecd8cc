package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// SaveSignals is empty, because no signal on Windows can ask a run to save a checkpoint.
var SaveSignals []os.Signal

// SignalName returns the name of a signal that Go delivers on Windows, or "".
func SignalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGKILL:
		return "SIGKILL"
	}
	return ""
}

// OwnGroup makes a command run in its own process group, so that Ctrl-C does not reach it.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// KillGroup returns errors.ErrUnsupported, because a process group of Windows does not include the children of its
// processes.
func KillGroup(int) error {
	return fmt.Errorf("kill a process and its children on Windows: %w", errors.ErrUnsupported)
}

// Yield returns errors.ErrUnsupported, because Windows has no nice values.
func Yield(int, int) error {
	return fmt.Errorf("lower the priority of a process on Windows: %w", errors.ErrUnsupported)
}

// ProcessTime returns the CPU time of all threads of this process.
func ProcessTime() (time.Duration, error) {
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user); err != nil {
		return 0, os.NewSyscallError("GetProcessTimes", err)
	}
	return spent(kernel) + spent(user), nil
}

// spent converts a duration in units of 100 ns to a time.Duration.
func spent(t windows.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}

// FileLimit returns ok = false, because Windows has no such limit.
func FileLimit() (files uint64, ok bool) { return 0, false }

// AddressLimit returns ok = false, because Windows has no such limit.
func AddressLimit() (bytes uint64, ok bool) { return 0, false }
