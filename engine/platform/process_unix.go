//go:build unix

package platform

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SaveSignals are the signals that ask a run to save a checkpoint and to continue.
var SaveSignals = []os.Signal{syscall.SIGUSR1}

// SignalName returns the name of a signal, such as "SIGKILL", or "" for a signal without a name.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }

// OwnGroup makes a command run in its own process group, so that Ctrl-C does not reach it.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills all processes of a process group. The parameter pid is the process id of the group's first process.
// An empty group is an error.
func KillGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// Yield sets the nice value of all processes of a process group to that of this process plus step, but at most 19. The
// parameter pid is the process id of the group's first process.
func Yield(pid, step int) error {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	return syscall.Setpriority(syscall.PRIO_PGRP, pid, min(19, niceOf(own)+step))
}

// ProcessTime returns the CPU time of all threads of this process. It does not allocate.
func ProcessTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// FileLimit returns the limit of open files of this process. The result ok is false if it is unknown. When a Go program
// starts, the runtime raises the soft limit to the hard limit. Processes that the program starts get the old soft limit
// again.
func FileLimit() (files uint64, ok bool) { return limitOf(syscall.RLIMIT_NOFILE) }

// AddressLimit returns the limit of the address space of this process, in bytes. The result ok is false if it is
// unknown.
func AddressLimit() (bytes uint64, ok bool) { return limitOf(syscall.RLIMIT_AS) }

func limitOf(resource int) (uint64, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(resource, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
