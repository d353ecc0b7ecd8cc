package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// comparedKey is the key of Compared in State.Extra.
const comparedKey = "replicas"

// Compared states which steps of a state are covered by comparisons of the ranks. A comparison that finds bit-equal
// states on all ranks covers all steps since the previous comparison.
type Compared struct {
	Ranks int   `json:"ranks"`          // number of ranks that trained
	Step  int64 `json:"step"`           // step of the last comparison; 0 before the first
	Gaps  []Gap `json:"gaps,omitempty"` // ranges of earlier steps that no comparison covers, ascending
}

// Gap is a range of steps that no comparison covers.
type Gap struct {
	After  int64  `json:"after"` // the step before the first step of the range
	To     int64  `json:"to"`    // the last step of the range
	Reason string `json:"reason"`
}

func (g Gap) String() string {
	return fmt.Sprintf("steps %d to %d were not compared between ranks (%s)", g.After+1, g.To, g.Reason)
}

// Reasons of a Gap.
const (
	GapOneRank = "one rank trained"
	GapLost    = "a rank was lost before the comparison"
	GapUnknown = "no comparison was recorded"
)

// Compared returns the record of comparisons. The result ok is false if the state has no record, for example because
// its weights were imported.
func (s State) Compared() (c Compared, ok bool) {
	raw, ok := s.Extra[comparedKey]
	if !ok || json.Unmarshal(raw, &c) != nil || c.Ranks < 1 || c.Step < 0 || c.Step > s.Step {
		return Compared{}, false
	}
	return c, true
}

// SetCompared stores the record of comparisons. Extra must not be nil.
func (s *State) SetCompared(c Compared) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("record of comparisons: %w", err)
	}
	s.Extra[comparedKey] = raw
	return nil
}

// AllGaps returns the ranges of steps that no comparison covers, in ascending order. The last range may end with the
// step of the state.
func (s State) AllGaps() []Gap {
	c, ok := s.Compared()
	open := Gap{After: c.Step, To: s.Step, Reason: GapLost}
	switch {
	case !ok:
		open.Reason = GapUnknown
	case c.Ranks == 1:
		open.Reason = GapOneRank
	}
	gaps := slices.Clone(c.Gaps)
	if open.To <= open.After {
		return gaps
	}
	if last := len(gaps) - 1; last >= 0 && gaps[last].To == open.After && gaps[last].Reason == open.Reason {
		gaps[last].To = open.To
		return gaps
	}
	return append(gaps, open)
}

// Uncompared reports that a run of several ranks saved the state without a comparison, because a rank was lost. The
// result after is the step of the last comparison.
func (s State) Uncompared() (after int64, yes bool) {
	c, ok := s.Compared()
	return c.Step, ok && c.Ranks > 1 && c.Step < s.Step
}

// DescribeCompared returns a sentence that states which steps comparisons cover.
func (s State) DescribeCompared() string {
	c, ok := s.Compared()
	var parts []string
	switch {
	case !ok:
	case c.Ranks > 1 && c.Step == s.Step:
		parts = append(parts, fmt.Sprintf("the states of %d ranks were equal at step %d", c.Ranks, s.Step))
	case c.Ranks > 1:
		parts = append(parts, fmt.Sprintf("not compared since step %d", c.Step))
	}
	for _, g := range s.AllGaps() {
		parts = append(parts, g.String())
	}
	return strings.Join(parts, "; ")
}
