package runtime

import "slices"

// Segment is a part of a run in which the number of ranks did not change. A run that resumes with another number of
// ranks begins a segment. Figures over ranks and steps cover only one segment, because the same rank may have another
// device in another segment.
type Segment struct {
	After int64 // last step before the segment; 0: the segment is the whole run
	Ranks int   // number of ranks; 0: unknown
}

// SegmentAt returns the segment that contains a step. The list starts contains the starts of processes in their order.
// If no process has started before the step, the segment is the whole run.
func SegmentAt(starts []Event, step int64) (s Segment) {
	for _, e := range slices.Backward(starts) {
		if e.Start == nil || e.Step >= step && step > 0 {
			continue
		}
		if s.Ranks > 0 && e.Start.Ranks != s.Ranks {
			return s
		}
		s = Segment{After: e.Step, Ranks: e.Start.Ranks}
	}
	s.After = 0 // the number of ranks never changed, even if the run has started from a step of another run
	return s
}

// Contains reports whether the segment contains the records of a step of a rank.
func (s Segment) Contains(rank int, step int64) bool {
	return step > s.After && (s.Ranks == 0 || rank < s.Ranks)
}
