package collective

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors that callers distinguish; see the package comment.
var (
	// ErrAborted: this rank called Abort. It is wrapped together with the cause.
	ErrAborted = errors.New("communication aborted")
	// ErrClosed: the communicator was closed, by its owner here or, inside a PeerError, by its owner there.
	ErrClosed = errors.New("communicator closed")
	// ErrDied is the cause of a PeerError where a rank's process ended or its connection broke.
	ErrDied = errors.New("its process has ended")
)

// PeerError: another rank ended the communicator.
type PeerError struct {
	Rank  int
	Cause error // ErrDied, ErrClosed, or what that rank said when it gave up
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Cause) }
func (e *PeerError) Unwrap() error { return e.Cause }

// TimeoutError: an operation was not complete in time.
type TimeoutError struct {
	Op     string        // as Describe says it
	Number uint64        // the how-manieth operation of the communicator, from 1
	Limit  time.Duration // from when this rank entered it
	// Missing are the ranks that had not entered the operation, ascending; Behind those that had, but were behind others
	// in it, where the implementation knows.
	Missing, Behind []int
	Ranks           []Progress // all ranks, where the implementation knows
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (operation %d): not complete after %v: ", e.Op, e.Number, e.Limit)
	switch {
	case len(e.Missing) > 0:
		fmt.Fprintf(&b, "%s not entered it", ranks(e.Missing))
	case len(e.Behind) > 0:
		fmt.Fprintf(&b, "%s entered it but stopped in the middle", ranks(e.Behind))
	default:
		b.WriteString("all ranks have entered it, one does not go on")
	}
	for _, p := range e.Ranks {
		fmt.Fprintf(&b, "; rank %d: ", p.Rank)
		if p.Entered == 0 {
			b.WriteString("none yet")
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

// Timeout says that this is one, as net.Error does.
func (e *TimeoutError) Timeout() bool { return true }

// MismatchError: ranks enqueued different operations. Got is another rank's, Want the one of the rank that says so.
type MismatchError struct {
	Rank      int
	Number    uint64 // the how-manieth operation of the communicator, from 1
	Got, Want string // as Signature says it
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("operation %d: rank %d has %s, here it is %s", e.Number, e.Rank, e.Got, e.Want)
}

// ranks is "rank 2 has" or "ranks 1, 3 have".
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
