package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrToken says that this rank and rank 0 do not have the same token.
var ErrToken = errors.New("the token of this rank differs from that of rank 0 (one of the two may have none)")

// ErrClosed is returned by calls on a group that this process has closed.
var ErrClosed = errors.New("the group is closed")

// ListenError says that rank 0 cannot listen.
type ListenError struct {
	Address string
	Err     error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("rank 0 cannot listen on %s: %v", e.Address, e.Err)
}

// Unwrap gives the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// UnreachableError says that rank 0 was not there.
type UnreachableError struct {
	Address string
	Waited  time.Duration
	Err     error // of the last attempt
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no rank 0 at %s within %v: %v", e.Address, round(e.Waited), e.Err)
}

// Unwrap gives the error of the last attempt.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Difference is something that must be equal and is not.
type Difference struct{ Name, Value, Rank0 string }

// DisagreeError says that a rank and rank 0 were not started alike. Long values are cut to where they differ.
type DisagreeError struct {
	Rank        int
	Who         string // host and process
	Differences []Difference
}

func (e *DisagreeError) Error() string {
	texts := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		texts[i] = fmt.Sprintf("%s is %s, rank 0 has %s", d.Name, d.Value, d.Rank0)
	}
	return fmt.Sprintf("rank %d (%s) does not agree with rank 0: %s", e.Rank, e.Who, strings.Join(texts, "; "))
}

// DuplicateError says that two processes came with the same rank.
type DuplicateError struct {
	Rank          int
	First, Second string // host and process
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("two processes claim to be rank %d: %s and %s", e.Rank, e.First, e.Second)
}

// MissingError says who did not come.
type MissingError struct {
	What      string // what was waited for
	Missing   []int  // the first of them, at most 64; empty where it is not about ranks
	Count     int    // of all that are missing
	WorldSize int
	Waited    time.Duration
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%s: waited %v", e.What, round(e.Waited))
	if e.Count == 0 {
		return text + " in vain"
	}
	return fmt.Sprintf("%s for %d ranks, missing: %s", text, e.WorldSize, RankList(e.Missing, e.Count))
}

// LostError says which rank ended the group, and why.
type LostError struct {
	Rank  int
	Cause string
}

func (e *LostError) Error() string { return fmt.Sprintf("rank %d is gone: %s", e.Rank, e.Cause) }

// RankList writes ranks as "rank 3" or "ranks 0, 2 to 5 and 9 more"; count is that of all, ranks may be the first of them.
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
	maxListed  = 64  // ranks that a MissingError names
	maxExcerpt = 160 // bytes of a value that a Difference shows
)

// differences compares facts by name and shows, where they differ, both.
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

// difference shows two texts; of long ones the first line that differs, of long lines the part that does.
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
