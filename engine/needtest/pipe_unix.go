//go:build unix

package needtest

import "syscall"

// MakePipe creates a named pipe.
func MakePipe(path string) error { return syscall.Mkfifo(path, 0o600) }
