package supervisor

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RankError says which rank ended a run, and why.
type RankError struct {
	Rank int
	PID  int
	Code int // exit code; -1: killed by Signal

	Signal syscall.Signal // 0: it ended by itself
	Core   bool           // it left a core dump
	Reason string         // what else is known: want of memory, what a process that hangs is doing; "": nothing
	Hung   bool           // it did not end when the others did, or when it was told to. Code is what those said, -1 if they ended well

	Tail string // the last lines it wrote to standard error, where that did not go to a file
}

func (e *RankError) Error() string {
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
	if e.Tail != "" {
		text.WriteString("; it last wrote:\n\t" + strings.ReplaceAll(e.Tail, "\n", "\n\t"))
	}
	return text.String()
}

// signalName is "SIGKILL", or "signal 99" for one without a name.
func signalName(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(signal))
}
