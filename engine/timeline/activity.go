package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// NewNoted creates a Recorder for a device that records its own activity. Programs run unchanged, and AddActivities
// adds the device's records at the end. first is the number of the first step.
func NewNoted(first int64) *Recorder {
	r := New(first)
	r.noted = true
	return r
}

// Noted reports whether the device records its own activity.
func (r *Recorder) Noted() bool { return r.noted }

// Begin records the start of a step whose parts are known only at its end.
func (r *Recorder) Begin(at time.Time) {
	if r.begun.IsZero() {
		r.begun = at
	}
}

// AddActivities adds a span for each activity of the device that overlaps the recorded steps.
func (r *Recorder) AddActivities(all device.Activities) error {
	first, end := window(r.spans)
	zero := r.at(all.Zero)
	for _, a := range all.List {
		s := Span{Track: Device, Lane: a.Lane, Name: a.Name, Begin: zero + int64(a.Begin), Took: int64(a.End - a.Begin),
			Bytes: a.Bytes}
		if s.End() < first || s.Begin > end {
			continue
		}
		switch a.Kind {
		case device.CallActivity:
			s.Track, s.Kind = Calls, Work
		case device.CopyActivity:
			s.Kind, s.Name = Copy, "copy"
		case device.FillActivity:
			s.Kind, s.Name = Copy, "fill"
		default:
			s.Code = a.Name
		}
		if a.Program != nil {
			steps, err := r.describe(a.Program)
			if err != nil {
				return err
			}
			if a.Step < len(steps) && steps[a.Step].Op != "" {
				s.Name, s.Op, s.Specs = steps[a.Step].Name, steps[a.Step].Op, steps[a.Step].Specs
			}
		}
		r.spans = append(r.spans, s)
	}
	return nil
}

// window returns the start of the first step and the end of the last one; 0, 0 without steps.
func window(spans []Span) (first, end int64) {
	for i := range spans {
		s := &spans[i]
		if s.Track != Steps {
			continue
		}
		if end == 0 || s.Begin < first {
			first = s.Begin
		}
		end = max(end, s.End())
	}
	return first, end
}

// Use describes the use of a device over consecutive steps. Times are in ns.
type Use struct {
	Steps  int
	Begin  int64 // start of the first step
	Window int64 // time from Begin to the end of the last step
	Busy   int64 // time in Window during which a kernel, copy or fill ran
	Copies int64 // time in Busy during which no kernel ran

	Gaps []Gap // idle times, the longest first
	Code []CodeTime
	Host []HostWaits
}

// Gap is an idle time of the device.
type Gap struct {
	Begin, Took   int64
	After, Before string // labels of the neighbouring activities
	Steps         bool   // a step ended or began during the gap
}

// CodeTime is the total time of a kernel, including time in which other activities ran.
type CodeTime struct {
	Name  string
	Op    string // kind of the op that launched it, "" if unknown
	Count int
	Took  int64
}

// HostWaits counts the calls of one function that returns only after the device has done some work.
type HostWaits struct {
	Name  string
	Count int
	Took  int64
	// number of calls after which the same step submitted more work: the device may have been idle during the call
	Within int
}

// UseOf analyses spans of Device and Calls. It returns nil without steps or without records of the device.
func UseOf(spans []Span) *Use {
	first, end := window(spans)
	var steps, work, calls []Span
	for _, s := range spans {
		switch s.Track {
		case Steps:
			steps = append(steps, s)
		case Device:
			work = append(work, s)
		case Calls:
			calls = append(calls, s)
		}
	}
	if len(steps) == 0 || len(work) == 0 {
		return nil
	}
	for _, list := range [][]Span{steps, work, calls} {
		slices.SortStableFunc(list, func(a, b Span) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	u := &Use{Steps: len(steps), Begin: first, Window: end - first}
	u.cover(work, steps, first, end)
	u.Code = codeTimes(work, first, end)
	u.Host = hostWaits(calls, steps)
	return u
}

// cover sets the times and gaps of u from the device's activities within the window. work is in order of start.
func (u *Use) cover(work, steps []Span, first, end int64) {
	at, kernels := first, first // latest end of any activity, and of any kernel, so far
	last := ""
	covered := int64(0) // time during which a kernel ran
	for _, s := range work {
		begin, stop := max(s.Begin, first), min(s.End(), end)
		if stop < begin {
			continue
		}
		if begin > at && last != "" {
			u.Gaps = append(u.Gaps, Gap{Begin: at, Took: begin - at, After: last, Before: s.label(),
				Steps: meets(steps, at, begin)})
		}
		u.Busy += max(0, stop-max(begin, at))
		if s.Kind == Launch {
			covered += max(0, stop-max(begin, kernels))
			kernels = max(kernels, stop)
		}
		if stop >= at {
			at, last = stop, s.label()
		}
	}
	u.Copies = u.Busy - covered
	slices.SortStableFunc(u.Gaps, func(a, b Gap) int { return cmp.Compare(b.Took, a.Took) })
}

// meets reports whether a step begins or ends between two times.
func meets(steps []Span, from, to int64) bool {
	return slices.ContainsFunc(steps, func(s Span) bool {
		return from <= s.Begin && s.Begin <= to || from <= s.End() && s.End() <= to
	})
}

// label returns the layer and the kernel of the span.
func (s *Span) label() string {
	if s.Code == "" || s.Code == s.Name {
		return s.Name
	}
	return s.Name + " (" + s.Code + ")"
}

// codeTimes returns the total time within the window of each kernel, of copies and of fills, the longest first.
func codeTimes(work []Span, first, end int64) []CodeTime {
	at := map[string]int{}
	var all []CodeTime
	for _, s := range work {
		begin, stop := max(s.Begin, first), min(s.End(), end)
		if stop < begin {
			continue
		}
		name := cmp.Or(s.Code, s.Name)
		i, ok := at[name]
		if !ok {
			i = len(all)
			at[name] = i
			all = append(all, CodeTime{Name: name, Op: s.Op})
		}
		all[i].Count++
		all[i].Took += stop - begin
		if all[i].Op != s.Op {
			all[i].Op = ""
		}
	}
	slices.SortStableFunc(all, func(a, b CodeTime) int { return cmp.Compare(b.Took, a.Took) })
	return all
}
