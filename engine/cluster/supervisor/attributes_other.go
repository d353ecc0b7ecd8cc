//go:build unix && !linux

package supervisor

import "syscall"

// attributes of a rank: a process group of its own. Only Linux can let it die with the supervisor.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: elsewhere the wait that follows also takes the child's number away.
func awaitExit(int) {}
