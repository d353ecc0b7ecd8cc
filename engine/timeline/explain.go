package timeline

import (
	"cmp"
	"slices"
)

// Explanation divides the time of a step into the times of its spans, by kind, and the remaining gap.
type Explanation struct {
	Step  string
	Total int64    // ns, measured around the whole step
	Kinds [4]int64 // time by Kind, ns; where spans of Host and Stream overlap, only the span of Stream counts
	// time without a span of Stream or Host, ns; if the device records its activity, time without a span of Device
	Gap int64
}

// Explained returns the fraction of the step that spans cover, 0…1.
func (e Explanation) Explained() float64 {
	if e.Total == 0 {
		return 0
	}
	return 1 - float64(e.Gap)/float64(e.Total)
}

// Explain returns the explanation of each step.
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
	if len(noted) > 0 { // the device's records replace the spans of Stream and Host
		leaves = noted
	}
	// A span comes before the spans within it.
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

// explain divides the time of a step among the spans in leaves, clipped to the step. Spans of one track do not overlap,
// but a span of Stream may be inside a span of Host.
func explain(step Span, leaves []Span) Explanation {
	e := Explanation{Step: step.Name, Total: step.Took, Gap: step.Took}
	var host Span
	stream, covered := step.Begin, step.Begin // latest end so far: of any span that is not of Host, and of any span
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
