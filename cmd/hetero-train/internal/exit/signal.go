package exit

import (
	"fmt"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// Stopped is the cause of a context that a signal has canceled. Signal is 0 if only other ranks received the signal.
type Stopped struct{ Signal syscall.Signal }

// Error returns the name of the signal.
func (s Stopped) Error() string {
	if s.Signal == 0 {
		return "stopped by a signal to another rank"
	}
	return "stopped by " + platform.SignalName(s.Signal)
}

// Saved returns the exit code of a run that was saved after the signal.
func (s Stopped) Saved() int {
	if s.Signal == syscall.SIGINT {
		return Interrupted
	}
	return Terminated
}

// BeforeSteps returns the error of a training run that the signal ended before its first step. The exit code is that of
// a saved run, because no step is lost if a scheduler restarts the run.
func (s Stopped) BeforeSteps() error {
	return With(s.Saved(), fmt.Errorf("%w before its first step: no step is lost", s))
}

// Unsaved returns the exit code of a run that could not be saved after the signal.
func (s Stopped) Unsaved() int {
	if s.Signal == syscall.SIGINT {
		return IO
	}
	return Killed
}
