package platform

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// prSetPdeathsig is the constant PR_SET_PDEATHSIG of prctl(2).
const prSetPdeathsig = 1

// NotifyParentDeath arranges that c receives a signal when the thread that started this process ends. The parent
// process usually ends at the same time, but the caller must check this with os.Getppid. On systems other than Linux, c
// receives nothing.
func NotifyParentDeath(c chan<- os.Signal) {
	signal.Notify(c, syscall.SIGUSR2)
	go func() { // the request ends with this thread, so the thread must live as long as the process
		runtime.LockOSThread()
		// without the request, the caller must poll
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGUSR2), 0)
		select {}
	}()
}
