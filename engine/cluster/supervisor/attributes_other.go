//go:build unix && !linux

package supervisor

import "syscall"

// attributes of a rank: its own process group. Only Linux can kill it together with the supervisor.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: on other systems Wait also frees the process id.
func awaitExit(int) {}
