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

	Signal syscall.Signal // signal that killed the rank; 0: none
	Core   bool           // the rank left a core dump
	Reason string         // further information: memory ran out, or the activity of a rank that hangs; "": none
	Stop   syscall.Signal // signal that the user sent before the rank hung; 0: none
	Hung   bool           // the rank did not end with the others; Code is then that of a rank that lost it, or -1

	Cause  string // cause that the rank reported (ReportCause); "": none
	Common bool   // there are at least two ranks on this machine, and all ended with this code and cause
	Tail   string // last lines of the rank's standard error; "" if standard error is a file
}

// Error names the rank, how it ended, and the cause. For a failure of all ranks (Common) it returns only the cause.
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
