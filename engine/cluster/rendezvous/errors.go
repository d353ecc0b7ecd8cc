package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrToken means that this rank and rank 0 have different tokens.
var ErrToken = errors.New("the token of this rank differs from the token of rank 0 (or one of them has no token)")

// ErrVersion means that the program at the address of rank 0, or another rank, uses another version of the protocol.
var ErrVersion = errors.New("the other side uses another version of the rendezvous protocol")

// ErrLoopbackDown means that the ranks of this machine cannot reach each other.
var ErrLoopbackDown = errors.New("the loopback interface of this machine is down: bring it up (ip link set lo up)")

// ErrClosed is returned by calls on a group that this process has closed.
var ErrClosed = errors.New("the group is closed")

// ListenError reports that rank 0 cannot listen.
type ListenError struct {
	Address string
	Err     error
}

func (e *ListenError) Error() string {
	mend := ""
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		mend = "; set another port on all ranks (MASTER_PORT or parallel.master_port), or end the program that uses this one"
	}
	return fmt.Sprintf("rank 0 cannot listen on %s: %v%s", e.Address, e.Err, mend)
}

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// UnreachableError reports that rank 0 could not be reached.
type UnreachableError struct {
	Address string
	Waited  time.Duration
	Err     error // error of the last attempt
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("connect to rank 0 at %s: no connection within %v: %v", e.Address, round(e.Waited), e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Difference is a value that must be equal on all ranks but is not.
type Difference struct{ Name, Value, Rank0 string }

// DisagreeError reports that a rank and rank 0 were started with different settings, or that a rank called Refuse. Long
// values are cut to the part that differs.
type DisagreeError struct {
	Rank        int
	Who         string // host and process of the rank
	Differences []Difference
}

func (e *DisagreeError) Error() string {
	if e.Refusal() != "" {
		return fmt.Sprintf("rank %d (%s) cannot join: %s", e.Rank, e.Who, e.Differences[0].Value)
	}
	var texts []string
	for _, d := range e.Differences[:min(len(e.Differences), mostDifferences)] {
		texts = append(texts, fmt.Sprintf("%s is %s, but rank 0 has %s", d.Name, d.Value, d.Rank0))
	}
	if more := len(e.Differences) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more differences", more))
	}
	return fmt.Sprintf("rank %d (%s) does not agree with rank 0: %s", e.Rank, e.Who, strings.Join(texts, "; "))
}

// DuplicateError reports two processes with the same rank.
type DuplicateError struct {
	Rank          int
	First, Second string // host and process of each of the two processes
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("two processes claim to be rank %d: %s and %s", e.Rank, e.First, e.Second)
}

// MissingError reports the ranks that did not reach an event in time.
type MissingError struct {
	What      string // the event that the ranks should have reached
	Missing   []int  // at most 64 missing ranks; empty if the event does not concern single ranks
	Count     int    // number of all missing ranks
	WorldSize int
	Waited    time.Duration
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%s: waited %v", e.What, round(e.Waited))
	if e.Count == 0 {
		return text + " without success"
	}
	return fmt.Sprintf("%s for %d ranks, missing: %s", text, e.WorldSize, RankList(e.Missing, e.Count))
}

// LostError reports the rank whose loss or Abort ended the group, and the cause.
type LostError struct {
	Rank  int
	Cause string
}

func (e *LostError) Error() string { return fmt.Sprintf("rank %d is lost: %s", e.Rank, e.Cause) }

// RankList returns a text such as "rank 3" or "ranks 0, 2 to 5 and 9 more". The parameter count is the total number of
// ranks; ranks may contain only the first of them.
func RankList(ranks []int, count int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(ranks[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(ranks[i]), strconv.Itoa(ranks[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d to %d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	text := "ranks " + strings.Join(parts, ", ")
	if count == 1 {
		text = "rank " + strings.Join(parts, ", ")
	}
	if count > len(ranks) {
		text += fmt.Sprintf(" and %d more", count-len(ranks))
	}
	return text
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

const (
	maxListed  = 64  // maximum number of ranks in a MissingError
	maxExcerpt = 160 // maximum length of an excerpt in a Difference, bytes

	mostDifferences = 8 // maximum number of differences in the text of a DisagreeError
)

// differences compares facts by name and returns those that differ, with both values.
func differences(own, rank0 []Fact) []Difference {
	var found []Difference
	for _, fact := range own {
		i := slices.IndexFunc(rank0, func(other Fact) bool { return other.Name == fact.Name })
		switch {
		case i < 0:
			found = append(found, Difference{fact.Name, excerpt(fact.Value, 0), "none"})
		case rank0[i].Value != fact.Value:
			found = append(found, difference(fact.Name, fact.Value, rank0[i].Value))
		}
	}
	for _, fact := range rank0 {
		if !slices.ContainsFunc(own, func(other Fact) bool { return other.Name == fact.Name }) {
			found = append(found, Difference{fact.Name, "none", excerpt(fact.Value, 0)})
		}
	}
	return found
}

// difference returns two different texts as a Difference. It shortens long texts to the first different line, and long
// lines to the part that differs.
func difference(name, value, rank0 string) Difference {
	if strings.Contains(value, "\n") || strings.Contains(rank0, "\n") {
		for line := 1; ; line++ {
			a, restA, moreA := strings.Cut(value, "\n")
			b, restB, moreB := strings.Cut(rank0, "\n")
			if a != b || moreA != moreB {
				name, value, rank0 = fmt.Sprintf("%s (line %d)", name, line), a, b
				break
			}
			value, rank0 = restA, restB
		}
	}
	common := 0
	for common < min(len(value), len(rank0)) && value[common] == rank0[common] {
		common++
	}
	return Difference{name, excerpt(value, common), excerpt(rank0, common)}
}

// excerpt quotes at most maxExcerpt bytes of a text around a position.
func excerpt(text string, at int) string {
	if len(text) <= maxExcerpt {
		return strconv.Quote(text)
	}
	from := min(max(at-maxExcerpt/4, 0), len(text)-maxExcerpt)
	quoted := strconv.Quote(text[from : from+maxExcerpt])
	if from > 0 {
		quoted = "…" + quoted
	}
	if from+maxExcerpt < len(text) {
		quoted += "…"
	}
	return quoted
}
