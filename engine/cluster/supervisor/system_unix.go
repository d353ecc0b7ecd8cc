//go:build unix

package supervisor

import (
	"os"
	"syscall"
)

// supported returns an error if Run cannot start ranks on this system.
func supported() error { return nil }

// closeOnExec marks an inherited file so that children of this process do not inherit it.
func closeOnExec(number uint64) { syscall.CloseOnExec(int(number)) }

// terminateSelf sends SIGTERM to this process.
func terminateSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // a process may send itself any signal
}

// killOwnGroup kills this process and its process group.
func killOwnGroup() {
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(-os.Getpid(), syscall.SIGKILL) // the group contains this process, so the call succeeds
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // a process may send itself any signal
}

// writeTo writes text to a descriptor and leaves it open. An os.File would close the descriptor when it is
// garbage-collected.
func writeTo(fd int, text string) error {
	_, err := syscall.Write(fd, []byte(text))
	return err
}
