package timeline

import (
	"cmp"
	"slices"
)

// Explanation is where the time of a step went, as far as spans say.
type Explanation struct {
	Step  string
	Total int64    // ns, measured around the whole step
	Kinds [4]int64 // ns, by Kind; what lies within a launch, copy or wait of the stream counts for that alone
	Gap   int64    // ns that no span of Stream or Host covers; where the device noted what it did, that none of Device covers
}

// Explained is the share of the step that has a name, 0…1.
func (e Explanation) Explained() float64 {
	if e.Total == 0 {
		return 0
	}
	return 1 - float64(e.Gap)/float64(e.Total)
}

// Explain takes each step apart.
func Explain(spans []Span) []Explanation {
	var steps, leaves, noted []Span
	for _, s := range spans {
		switch s.Track {
		case Steps:
			steps = append(steps, s)
		case Stream, Host:
			leaves = append(leaves, s)
		case Device:
			noted = append(noted, s)
		}
	}
	if len(noted) > 0 { // what the host waited for meanwhile explains nothing
		leaves = noted
	}
	// What contains another comes first.
	order := func(a, b Span) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.Took, a.Took)) }
	slices.SortFunc(steps, order)
	slices.SortStableFunc(leaves, order)
	out := make([]Explanation, len(steps))
	for i, step := range steps {
		first := slices.IndexFunc(leaves, func(s Span) bool { return s.End() > step.Begin })
		if first < 0 {
			first = len(leaves)
		}
		leaves = leaves[first:]
		out[i] = explain(step, leaves)
	}
	return out
}

// explain takes a step apart. What began before it, or ends behind it, counts as far as it lies within. Spans of one track follow one another; those of the stream may lie within one of the host.
func explain(step Span, leaves []Span) Explanation {
	e := Explanation{Step: step.Name, Total: step.Took, Gap: step.Took}
	var host Span
	stream, covered := step.Begin, step.Begin // their ends so far
	for _, s := range leaves {
		if s.Begin >= step.End() {
			break
		}
		end := min(s.End(), step.End())
		if s.Track == Host {
			e.Kinds[s.Kind] += max(0, end-max(s.Begin, covered))
			host = s
		} else if from := max(s.Begin, stream); end > from {
			e.Kinds[s.Kind] += end - from
			e.Kinds[host.Kind] -= max(0, min(end, host.End())-max(from, host.Begin))
			stream = end
		}
		covered = max(covered, end)
	}
	for _, ns := range e.Kinds {
		e.Gap -= ns
	}
	return e
}
