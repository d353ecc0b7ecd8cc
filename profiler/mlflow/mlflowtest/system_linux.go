package mlflowtest

import (
	"os/exec"
	"syscall"
)

// diesWithTest puts a command into its own process group. It also makes the kernel kill the process when the thread
// that started it ends. In that case, the workers of the server are not killed.
func diesWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
