package hosts

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// look checks the inner communicators for failures.
func (c *Communicator) look() {
	for _, i := range c.inner {
		if err := i.Err(); err != nil {
			c.fail(c.translate(err, i.ranks))
			return
		}
	}
}

// enter records that an operation's After event is complete.
func (c *Communicator) enter(f *inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.at.Entered, c.at.Last = f.number, f.op.Tags().Name
	}
}

// fail sets the first failure and notifies the other ranks. It does nothing if a failure is already set or the
// communicator is closed.
func (c *Communicator) fail(err error) {
	c.mu.Lock()
	first := c.err == nil && !c.closing
	if first {
		c.err = err
		c.turn.Broadcast()
	}
	c.mu.Unlock()
	if !first {
		return
	}
	for _, i := range c.inner {
		i.Abort(noticeOf(err, c.opts.Rank))
	}
}

// translate returns an inner communicator's error with the rank numbers of the whole group.
func (c *Communicator) translate(err error, ranks []int) error {
	own := c.opts.Rank
	if n, ok := parseNotice(err.Error()); ok {
		return c.told(n)
	}
	if c.opts.RankOf != nil {
		if rank := c.opts.RankOf(err); rank >= 0 && rank != own {
			if peer, ok := err.(*collective.PeerError); ok { // peer.Rank is a rank of the inner communicator
				err = peer.Cause
			}
			return &collective.PeerError{Rank: rank, Cause: err}
		}
	}
	if e, ok := err.(*collective.PeerError); ok { // not errors.As, as in located
		return &collective.PeerError{Rank: ranks[e.Rank], Cause: causeOf(e.Cause, ranks)}
	}
	if e := located(err, ranks); e != nil {
		return e
	}
	return fmt.Errorf("collective: rank %d: among ranks %v: %w", own, ranks, err)
}

// causeOf translates the cause that a peer reported. Its text may contain ranks of the inner communicator.
func causeOf(cause error, ranks []int) error {
	if e := located(cause, ranks); e != nil {
		return e
	}
	if cause == collective.ErrDied || cause == collective.ErrClosed { // these sentinels contain no rank numbers
		return cause
	}
	return fmt.Errorf("among ranks %v: %w", ranks, cause)
}

// located translates the ranks in the fields of an error. It returns nil if the error has no such fields.
func located(err error, ranks []int) error {
	switch e := err.(type) { //nolint:errorlint // errors.As also finds an error in an abort's cause: of another group
	case *collective.TimeoutError:
		return lateness(e, ranks)
	case *collective.MismatchError:
		m := *e
		m.Rank = ranks[e.Rank]
		return &m
	}
	return nil
}

func lateness(e *collective.TimeoutError, ranks []int) *collective.TimeoutError {
	late := *e
	late.Missing, late.Behind, late.Ranks = translated(e.Missing, ranks), translated(e.Behind, ranks), nil
	for _, p := range e.Ranks {
		p.Rank = ranks[p.Rank]
		late.Ranks = append(late.Ranks, p)
	}
	return &late
}

func translated(list, ranks []int) (out []int) {
	for _, i := range list {
		out = append(out, ranks[i])
	}
	return out
}

// told returns the error for a notice of another rank.
func (c *Communicator) told(n notice) error {
	var cause error
	switch n.kind {
	case "died":
		cause = collective.ErrDied
	case "closed":
		cause = collective.ErrClosed
	case "late":
		late := &collective.TimeoutError{Op: n.text, Number: n.number, Limit: n.limit, Missing: n.missing,
			Behind: n.behind}
		if c.Position().Entered >= n.number {
			return late // the operation has also timed out on this rank
		}
		cause = late
	default:
		cause = errors.New(n.text)
	}
	if n.rank == c.opts.Rank {
		return fmt.Errorf("collective: rank %d: %w by others: %w", n.rank, collective.ErrAborted, cause)
	}
	return &collective.PeerError{Rank: n.rank, Cause: cause}
}

// notice is a failure in a form that can be sent as text, because inner communicators may transfer only the text of an
// error.
type notice struct {
	rank            int    // the rank that failed or was lost
	kind            string // died, closed, late, failed
	number          uint64 // for late: number of the operation, as in collective.TimeoutError
	limit           time.Duration
	missing, behind []int
	text            string // for late: name of the operation
}

// noticeOf returns the notice of this rank's failure.
func noticeOf(err error, own int) notice {
	n := notice{rank: own, kind: "failed", text: err.Error()}
	if peer, ok := err.(*collective.PeerError); ok { //nolint:errorlint // as above
		n.rank, err = peer.Rank, peer.Cause
		n.text = err.Error()
	}
	late, isLate := err.(*collective.TimeoutError) //nolint:errorlint // as above
	switch {
	case errors.Is(err, collective.ErrAborted): // without its cause, which belongs to another group
	case isLate:
		n.kind, n.text, n.number, n.limit, n.missing, n.behind = "late", late.Op, late.Number, late.Limit, late.Missing,
			late.Behind
	case errors.Is(err, collective.ErrDied):
		n.kind = "died"
	case errors.Is(err, collective.ErrClosed):
		n.kind = "closed"
	}
	return n
}

func (n notice) Error() string {
	return fmt.Sprintf("hosts[rank=%d kind=%s number=%d limit=%v missing=%s behind=%s] %s",
		n.rank, n.kind, n.number, n.limit, listed(n.missing), listed(n.behind), n.text)
}

var noticeForm = regexp.MustCompile(`(?s)hosts\[rank=(\d+) kind=(died|closed|late|failed) number=(\d+) limit=(\S+) missing=([\d,]*) behind=([\d,]*)\] (.*)$`)

// parseNotice finds the notice in the text of an error.
func parseNotice(text string) (n notice, ok bool) {
	m := noticeForm.FindStringSubmatch(text)
	if m == nil {
		return n, false
	}
	var faults [3]error
	n.kind, n.text, n.missing, n.behind = m[2], m[7], unlisted(m[5]), unlisted(m[6])
	n.rank, faults[0] = strconv.Atoi(m[1])
	n.number, faults[1] = strconv.ParseUint(m[3], 10, 64)
	n.limit, faults[2] = time.ParseDuration(m[4])
	return n, errors.Join(faults[:]...) == nil
}

// Origin extracts the original failure from the text of a group's error: the rank that failed first, and its cause. The
// error itself may name a different rank, which only forwarded the failure. ok is false if the text contains no
// original failure.
func Origin(text string) (rank int, cause string, ok bool) {
	n, ok := parseNotice(text)
	if !ok {
		return 0, "", false
	}
	switch n.kind {
	case "died":
		cause = collective.ErrDied.Error()
	case "closed":
		cause = collective.ErrClosed.Error()
	case "late":
		late := collective.TimeoutError{Op: n.text, Number: n.number, Limit: n.limit, Missing: n.missing,
			Behind: n.behind}
		cause = late.Error()
	default:
		cause = n.text
	}
	return n.rank, cause, true
}

func listed(ranks []int) string {
	var names []string
	for _, r := range ranks {
		names = append(names, strconv.Itoa(r))
	}
	return strings.Join(names, ",")
}

func unlisted(text string) (ranks []int) {
	for name := range strings.SplitSeq(text, ",") {
		if rank, err := strconv.Atoi(name); err == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
