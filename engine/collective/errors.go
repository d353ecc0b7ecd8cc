package collective

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors that callers distinguish; the package comment lists them.
var (
	// ErrAborted means that this rank called Abort. The returned error also wraps the cause.
	ErrAborted = errors.New("communication aborted")
	// ErrClosed means that this communicator was closed. If it is the cause of a PeerError, the other rank has closed
	// its communicator.
	ErrClosed = errors.New("communicator closed")
	// ErrDied is the cause of a PeerError if a rank's process ended or its connection broke.
	ErrDied = errors.New("its process has ended")
	// ErrDamaged means that data of another rank was changed during its transfer.
	ErrDamaged = errors.New("data changed in the network or in memory")
)

// PeerError reports that another rank ended the communicator.
type PeerError struct {
	Rank  int
	Cause error // ErrDied, ErrClosed, or the cause that the other rank (Rank) gave for its failure
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Cause) }
func (e *PeerError) Unwrap() error { return e.Cause }

// TimeoutError reports an operation that exceeded its time limit.
type TimeoutError struct {
	Op     string        // the operation, as Describe returns it
	Number uint64        // position of the operation in the communicator's sequence, from 1
	Limit  time.Duration // time limit, counted from the time at which this rank entered the operation
	// Missing lists the ranks that had not entered the operation, ascending. Behind lists the ranks that had entered it
	// but had made less progress than others, if the implementation knows them.
	Missing, Behind []int
	Ranks           []Progress // all ranks, if the implementation knows their progress
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (operation %d): not complete after %v: ", e.Op, e.Number, e.Limit)
	switch {
	case len(e.Missing) > 0:
		fmt.Fprintf(&b, "%s not started it", ranks(e.Missing))
	case len(e.Behind) > 0:
		fmt.Fprintf(&b, "%s started it but stopped before its end", ranks(e.Behind))
	default:
		b.WriteString("all ranks have started it, but at least one stopped before its end")
	}
	for _, p := range e.Ranks {
		fmt.Fprintf(&b, "; rank %d: ", p.Rank)
		if p.Entered == 0 {
			b.WriteString("has not started any operation")
			continue
		}
		state := "in"
		if p.Finished >= p.Entered {
			state = "finished"
		}
		fmt.Fprintf(&b, "%s operation %d", state, p.Entered)
		if p.Last != "" {
			fmt.Fprintf(&b, " %q", p.Last)
		}
	}
	return b.String()
}

// Timeout returns true, as net.Error requires for time-outs.
func (e *TimeoutError) Timeout() bool { return true }

// MismatchError reports that ranks enqueued different operations. Got is the operation of the rank in the field Rank.
// Want is the operation of the rank that reports the error.
type MismatchError struct {
	Rank      int
	Number    uint64 // position of the operation in the communicator's sequence, from 1
	Got, Want string // texts of the operations, as Signature returns them
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("operation %d: got %[3]s on rank %[2]d, want %[4]s as on this rank", e.Number, e.Rank, e.Got,
		e.Want)
}

// ranks returns "rank 2 has" or "ranks 1, 3 have".
func ranks(list []int) string {
	var names []string
	for _, r := range list {
		names = append(names, strconv.Itoa(r))
	}
	if len(list) == 1 {
		return "rank " + names[0] + " has"
	}
	return "ranks " + strings.Join(names, ", ") + " have"
}
