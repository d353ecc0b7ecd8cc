package mlflowtest

import (
	"os/exec"
	"syscall"
)

// diesWithTest puts a command into its own process group, and makes the kernel kill its process when the thread that
// starts it ends. The workers of the server are then not killed.
func diesWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
