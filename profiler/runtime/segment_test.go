package runtime

import "testing"

func TestASegmentHasOneNumberOfRanks(t *testing.T) {
	start := func(step int64, ranks int) Event { return Event{Step: step, Start: &StartEvent{Ranks: ranks}} }
	other := Event{Step: 120, Length: &LengthEvent{}}
	for _, c := range []struct {
		name   string
		starts []Event
		step   int64
		want   Segment
	}{
		{"no starts", nil, 100, Segment{}},
		{"one start", []Event{start(0, 4)}, 100, Segment{0, 4}},
		{"started from a step of another run", []Event{start(33, 2)}, 100, Segment{0, 2}},
		{"resumed with the same ranks", []Event{start(0, 4), start(50, 4)}, 100, Segment{0, 4}},
		{"resumed with fewer ranks", []Event{start(0, 4), start(50, 1), other, start(70, 1)}, 100, Segment{50, 1}},
		{"a step of the first segment", []Event{start(0, 4), start(50, 1)}, 50, Segment{0, 4}},
		{"back to the first number", []Event{start(0, 2), start(50, 4), start(80, 2)}, 100, Segment{80, 2}},
		{"the newest start has no step yet", []Event{start(0, 4), start(100, 1)}, 100, Segment{0, 4}},
		{"no step is known", []Event{start(0, 4), start(100, 1)}, 0, Segment{100, 1}},
	} {
		if got := SegmentAt(c.starts, c.step); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	s := Segment{After: 50, Ranks: 2}
	if s.Contains(0, 50) || !s.Contains(1, 51) || s.Contains(2, 51) || !(Segment{}).Contains(7, 1) {
		t.Errorf("%+v contains other steps or ranks than 51 and later of ranks 0 and 1", s)
	}
}
