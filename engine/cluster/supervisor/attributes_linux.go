package supervisor

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes of a rank's process: its own process group, and SIGKILL when the thread that
// started the rank ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when a child has ended. The child remains a zombie, so its process id is not reused.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
