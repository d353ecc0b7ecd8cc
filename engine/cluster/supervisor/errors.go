package supervisor

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// RankError reports the rank that ended a run, and the cause.
type RankError struct {
	Rank int
	PID  int
	Code int // exit code; -1: killed by Signal

	Signal syscall.Signal // 0: not killed by a signal
	Core   bool           // the rank left a core dump
	Reason string         // further information: lack of memory, or the activity of a process that hangs; "": none
	Stop   syscall.Signal // signal of the user before the rank hung; 0: none
	Hung   bool           // the rank did not end with the others; Code is then their exit code, or -1 if they succeeded

	Cause  string // cause that the rank reported (ReportCause); "": none
	Common bool   // all ranks of this machine, at least two, ended with this code and cause
	Tail   string // last lines of the rank's standard error; "" if standard error is a file
}

// Error names the rank, how it ended, and the cause. For a failure of all ranks (Common) it returns the cause alone.
func (e *RankError) Error() string {
	if e.Common {
		return e.Cause
	}
	if e.Cause != "" {
		return e.end() + ": " + e.Cause
	}
	if e.Tail != "" {
		return e.end() + "; it last wrote:\n\t" + strings.ReplaceAll(e.Tail, "\n", "\n\t")
	}
	return e.end()
}

// end describes how the rank ended, without the cause that it reported.
func (e *RankError) end() string {
	var text strings.Builder
	fmt.Fprintf(&text, "rank %d (process %d) ", e.Rank, e.PID)
	switch {
	case e.Hung:
		text.WriteString("hangs")
	case e.Signal != 0:
		fmt.Fprintf(&text, "was killed by %s", signalName(e.Signal))
	default:
		fmt.Fprintf(&text, "ended with exit code %d", e.Code)
	}
	if e.Core {
		text.WriteString(" (core dumped)")
	}
	if e.Reason != "" {
		text.WriteString(": " + e.Reason)
	}
	return text.String()
}

// signalName returns "SIGKILL", or "signal 99" for a signal without a name.
func signalName(signal syscall.Signal) string {
	if name := platform.SignalName(signal); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(signal))
}
