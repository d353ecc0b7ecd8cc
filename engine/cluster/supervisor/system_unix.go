//go:build unix

package supervisor

import "syscall"

// supported returns an error if Run cannot start ranks on this system.
func supported() error { return nil }

// closeOnExec keeps an inherited file from the children of this process.
func closeOnExec(number uint64) { syscall.CloseOnExec(int(number)) }
