package content

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Options describe the data of this rank.
type Options struct {
	Content data.Content
	Rank    int
	Seed    uint64 // determines the order of units; must be equal on all ranks
	// Place identifies the files that this rank reads. It must be equal on ranks of one machine that read the same
	// files, and different on all other ranks.
	Place string
	Host  string // name of the machine, for messages
	Path  string // path of the data, for messages
	// ValPath is the separate path of the evaluation part, if there is one, for messages.
	ValPath string
	// Decoder is the name of the decoder that this process uses, if the choice depends on the machine; otherwise "". A
	// warning uses it.
	Decoder string

	// Gather exchanges one value of each rank; see rendezvous.Group.
	Gather func(ctx context.Context, name string, value []byte) ([][]byte, error)
}

// Team describes all ranks and the files that they read. All ranks must call its methods in the same order.
type Team struct {
	Options
	members []member
	first   []int    // for each rank, the first rank with the same Place
	known   []uint64 // hashes that Compare has exchanged, in the order of the walk; 0: no rank could read the unit
	by      []uint16 // for each element of known, the first rank that read the unit
	passed  int      // number of units, in the order of the walk, that Compare has visited
}

// member describes a rank to the other ranks.
type member struct {
	Place string `json:"place"`
	Host  string `json:"host"`
	Path  string `json:"path"`
	Val   string `json:"val_path"`
	Units int    `json:"units"`

	Decoder string `json:"decoder"`
}

// Meet exchanges the descriptions of all ranks.
func Meet(ctx context.Context, o Options) (*Team, error) {
	word, err := json.Marshal(member{o.Place, o.Host, o.Path, o.ValPath, o.Content.Len(), o.Decoder})
	if err != nil {
		return nil, err
	}
	words, err := o.Gather(ctx, "data: places", word)
	if err != nil {
		return nil, err
	}
	t := &Team{Options: o, members: make([]member, len(words)), first: make([]int, len(words))}
	for rank, word := range words {
		if err := json.Unmarshal(word, &t.members[rank]); err != nil {
			return nil, fmt.Errorf("description of the data of rank %d: %w", rank, err)
		}
		t.first[rank] = slices.IndexFunc(t.members, func(m member) bool { return m.Place == t.members[rank].Place })
	}
	return t, nil
}

// Decoders returns Options.Decoder of all ranks.
func (t *Team) Decoders() []string {
	names := make([]string, len(t.members))
	for rank, m := range t.members {
		names[rank] = m.Decoder
	}
	return names
}

// Alone reports whether all ranks read the same files, so that no comparison is needed.
func (t *Team) Alone() bool {
	return !slices.ContainsFunc(t.first, func(first int) bool { return first > 0 })
}

// reads reports whether this rank reads units for the comparison.
func (t *Team) reads() bool { return t.first[t.Rank] == t.Rank }

// readers returns the ranks that read units for the comparison. The first is rank 0.
func (t *Team) readers() (ranks []int) {
	for rank, first := range t.first {
		if first == rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// DifferenceError reports that two ranks read different data. All ranks return the same error.
type DifferenceError struct {
	Rank, Other         int    // Rank > Other
	Host, OtherHost     string // names of the machines
	Path, OtherPath     string
	Val, OtherVal       string // data.val_path of both
	Unit, OtherUnit     string // names of the first unit that differs; "" if the numbers of units differ
	Kind                string // the property that differs
	Differing, Compared int    // numbers of units; 0 if not counted
}

// Is reports whether target is [data.ErrDiffers]; see errors.Is.
func (e *DifferenceError) Is(target error) bool { return target == data.ErrDiffers }

func (e *DifferenceError) Error() string {
	unit, counted := "", ""
	if e.Unit != "" {
		unit = fmt.Sprintf(" of %.200q", e.Unit)
	}
	if e.Unit != e.OtherUnit {
		unit += fmt.Sprintf(", on rank %d %.200q,", e.Other, e.OtherUnit)
	}
	if e.Compared > 0 {
		counted = fmt.Sprintf(" (%d of %d compared units differ)", e.Differing, e.Compared)
	}
	key, path, other := "data.path", e.Path, e.OtherPath
	switch {
	case e.Val == e.OtherVal:
	case path == other:
		key, path, other = "data.val_path", e.Val, e.OtherVal
	default:
		key = "data.path or data.val_path"
	}
	return fmt.Sprintf("%s: rank %d (%s, %.300q) and rank %d (%s, %.300q) read different data: the %s%s differs%s; give all machines the same files",
		key, e.Rank, e.Host, path, e.Other, e.OtherHost, other, e.Kind, unit, counted)
}

// differ returns the error for a difference between two ranks.
func (t *Team) differ(a, b int, kind string) *DifferenceError {
	rank, other := max(a, b), min(a, b)
	m, o := t.members[rank], t.members[other]
	return &DifferenceError{Rank: rank, Other: other, Host: m.Host, OtherHost: o.Host, Path: m.Path, OtherPath: o.Path,
		Val: m.Val, OtherVal: o.Val, Kind: kind}
}

// part adds the names of a unit to the error. It returns only after all ranks have the error, because otherwise a rank
// might only report that another rank has left the group. The parameter unit is -1 if the error does not concern a
// unit.
func (t *Team) part(ctx context.Context, e *DifferenceError, unit int) error {
	name := ""
	if unit >= 0 {
		name = t.Content.Name(unit)
	}
	names, err := t.Gather(ctx, "data: difference", []byte(name[:min(len(name), mostName)]))
	if err == nil { // otherwise the error has no names
		e.Unit, e.OtherUnit = string(names[e.Rank]), string(names[e.Other])
	}
	return e
}

const mostName = 4 << 10 // bytes
