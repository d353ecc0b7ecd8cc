package lab

import "syscall"

// ownGroup keeps Ctrl-C on the terminal for the rank, which then stops its neighbours.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
