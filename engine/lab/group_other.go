//go:build !linux

package lab

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
