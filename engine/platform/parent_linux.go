package platform

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// prSetPdeathsig is PR_SET_PDEATHSIG of prctl(2).
const prSetPdeathsig = 1

// NotifyParentDeath sends a signal to c when the thread that started this process ends. Usually, the parent process
// ends at the same time; the caller must check os.Getppid. On systems other than Linux, it sends nothing.
func NotifyParentDeath(c chan<- os.Signal) {
	signal.Notify(c, syscall.SIGUSR2)
	go func() { // the request belongs to this thread, so the thread must exist as long as the process
		runtime.LockOSThread()
		// without it, the caller polls
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGUSR2), 0)
		select {}
	}()
}
