package mlflowtest

import (
	"os/exec"
	"syscall"
)

// diesWithTest gives a command its own process group, which ends with this process.
func diesWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
