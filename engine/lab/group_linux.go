package lab

import "syscall"

// ownGroup returns attributes that put a neighbour into its own process group. Ctrl-C then reaches only the rank, and
// the rank stops its neighbours.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
