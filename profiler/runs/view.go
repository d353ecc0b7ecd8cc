package runs

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// View contains the current state of a run, without the figures that depend on the step.
type View struct {
	Name     string `json:"name"`
	Version  int64  `json:"version"`
	State    State  `json:"state"`
	Progress struct {
		Read  int64 `json:"read"`  // bytes of records read so far
		Bytes int64 `json:"bytes"` // size of the files of records in bytes
	} `json:"progress"`
	First    int64    `json:"first"` // first and newest recorded step; 0 if there are no records
	Last     int64    `json:"last"`
	Settings Settings `json:"settings"`
	// Precision is the element type of the ranks as chosen, such as "bf16"; "" if unknown.
	Precision string `json:"precision"`
	// Notes contains conditions that are needed to interpret the figures, such as CPU quotas.
	Notes    []string           `json:"notes"`
	Result   *experiment.Result `json:"result"`
	Profiles []Profile          `json:"profiles"`
	Ranks    []RankView         `json:"ranks"`
	Totals   Totals             `json:"totals"`
	// Common is the newest step of which all ranks have a record. The records in Ranks belong to this step. Common is
	// at most Last; 0 if there is no such step.
	Common   int64             `json:"common"`
	Speed    Speed             `json:"speed"`    // figures of the newest steps
	Decision *Decision         `json:"decision"` // newest decision
	Changes  []Decision        `json:"changes"`  // newest decisions that changed shares, in order
	Starts   []runtime.Event   `json:"starts"`   // starts of processes
	Length   int64             `json:"length"`   // number of steps of the whole run; 0 if unknown
	Evals    []runtime.Event   `json:"evals"`    // newest evaluations, in order
	Saves    []runtime.Event   `json:"saves"`    // newest checkpoints, in order
	Verdicts []Verdict         `json:"verdicts"` // newest verdicts on what limits the speed, in order
	Alerts   []Alert           `json:"alerts"`   // newest alerts, in order
	Damaged  map[string]string `json:"damaged"`  // by file name: why it cannot be read, or only in part
	// describes the ranks without records, and how to fix this; "" if there are none
	Lacking string      `json:"lacking"`
	Curves  []CurveView `json:"curves"` // step-time curve of each rank

	Communication *CommunicationView `json:"communication"` // communication of the newest steps; nil if unknown

	// SegmentFrom is the first step with the present number of ranks. Ranks, Decision, Verdicts and Curves belong to
	// the steps from SegmentFrom on.
	SegmentFrom int64 `json:"segment_from"`

	// Account is the account of all steps from SegmentFrom on, without the warm-up. It is nil before the end of the
	// run, or if the summary of the run is missing or covers other steps.
	Account *Account `json:"account"`
}

// RankView contains the record of a rank at the newest step that all ranks have, and its speed.
type RankView struct {
	Rank   int             `json:"rank"`
	Record *runtime.Record `json:"record"` // nil if there is no record
	Health string          `json:"health"` // verdict of the balancer; "" if there is none
	Cause  string          `json:"cause"`
	RankSpeed
	Memory *MemoryView `json:"memory"` // nil: the process has recorded no planned memory

	Missing bool `json:"missing,omitempty"` // the rank has no file of records
}

// CurveView contains the step-time curve of a rank and its measured times. Times are compute times in s.
type CurveView struct {
	Rank   int          `json:"rank"`
	Fitted []Point      `json:"fitted"`
	Shares []ShareTimes `json:"shares"`
}

// ShareTimes contains the measured times of a rank with one share.
type ShareTimes struct {
	Samples int64   `json:"samples"`
	Steps   int64   `json:"steps"`
	Mean    float64 `json:"mean"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
}

// View returns the state as of the last Update.
func (r *Run) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := View{Name: r.Name, Version: r.version, State: r.evidence.judge(), Settings: r.settings,
		Result: r.evidence.result, Profiles: readProfiles(r.root),
		Ranks: []RankView{}, Changes: slices.Clone(r.decided.changes.list), Decision: r.decided.last,
		Alerts: r.alerts(), Damaged: r.damage(r.evidence.judge().Kind), Lacking: r.lacking, Curves: []CurveView{}}
	h := &r.happened
	v.Starts, v.Length, v.Evals, v.Saves, v.Verdicts = slices.Clone(h.starts.list), h.length,
		slices.Clone(h.evals.list), slices.Clone(h.saves.list), slices.Clone(h.verdicts.list)
	v.Communication = r.communicated.last
	v.Precision, v.Notes = r.precision(), r.notes()
	v.Progress.Bytes = r.unread()
	var fitted map[int][]Point
	if r.logs != nil {
		fitted = readCurves(r.logs)
	}
	v.First, v.Last = r.steps()
	segment, active := r.present(v.Last)
	v.SegmentFrom = segment.After + 1
	v.Account = r.account(v.State.Kind, v.SegmentFrom, v.Last)
	v.Verdicts = slices.DeleteFunc(v.Verdicts, func(d Verdict) bool { return d.To <= segment.After })
	if v.Decision != nil && v.Decision.Step <= segment.After {
		v.Decision = nil
	}
	if d := v.Decision; d != nil && v.State.Kind == Crashed && r.lacks(v.Last, d.Step) {
		v.Notes = append(v.Notes, fmt.Sprintf(
			"the records after step %d are lost: the process ended before it wrote them, and the newest decision is of step %d",
			v.Last, d.Step))
	}
	records, step := r.common(active)
	v.Common, v.Totals = step, r.totals()
	records = records[:min(len(records), active)]
	window := v.Decision
	if !windowed(window, records) {
		window = nil
	}
	v.Speed = clusterSpeed(window, records)
	var planned []runtime.RankMemory
	begun, _ := r.happened.newestStart()
	if r.logs != nil {
		planned = readMemory(r.logs, r.evidence.use.id(), begun, active)
	}
	for i, k := range r.ranks {
		v.Progress.Read, v.Progress.Bytes = v.Progress.Read+k.tail.Offset(), v.Progress.Bytes+k.tail.Size
		if i >= active { // a rank of an earlier process that had more ranks
			continue
		}
		rv := RankView{Rank: i, Record: records[i], RankSpeed: speedOf(window, i, float64(v.Speed.Samples), records[i])}
		_, rv.Missing = slices.BinarySearch(r.missing, i)
		if i < len(planned) {
			rv.Memory = memoryOf(planned[i], records[i], begun)
		}
		if d := v.Decision; d != nil && i < len(d.Ranks) {
			rv.Health, rv.Cause = d.Ranks[i].Health, d.Ranks[i].Cause
		}
		v.Ranks = append(v.Ranks, rv)
		c := CurveView{Rank: i, Fitted: fitted[i], Shares: []ShareTimes{}}
		for _, samples := range slices.Sorted(maps.Keys(k.shares)) {
			s := k.shares[samples]
			c.Shares = append(c.Shares, ShareTimes{samples, s.n, s.sum / float64(s.n), s.min, s.max})
		}
		v.Curves = append(v.Curves, c)
	}
	return v
}

// lacks reports whether records are missing: a step after the last recorded one, up to the step of a decision, should
// have a record.
func (r *Run) lacks(last, decided int64) bool {
	interval := max(r.settings.Profile.Interval, 1)
	return r.settings.recorded() && decided/interval*interval > last
}

// present returns the segment of the newest step, and the number of its ranks.
func (r *Run) present(last int64) (segment runtime.Segment, ranks int) {
	segment = runtime.SegmentAt(r.happened.starts.list, last)
	ranks = segment.Ranks
	if d := r.decided.last; d != nil && len(r.happened.starts.list) > 0 {
		if step, _ := r.happened.newestStart(); d.Step > step { // the events may not contain the newest start
			ranks = len(d.Shares)
		}
	}
	if ranks == 0 {
		return segment, len(r.ranks)
	}
	return segment, min(ranks, len(r.ranks))
}

// precision returns the element type of the ranks. The setting "auto" is not a type.
func (r *Run) precision() string {
	if r.evidence.ended() && r.evidence.result.Precision != "" {
		return r.evidence.result.Precision
	}
	if _, start := r.happened.newestStart(); start.Precision != "" {
		return start.Precision
	}
	if set := r.settings.Train.Precision; set != "auto" {
		return set
	}
	return ""
}

// notes returns the notes of the newest start, and the notes that were added at the end of the run.
func (r *Run) notes() []string {
	_, start := r.happened.newestStart()
	notes := append([]string{}, start.Notes...)
	notes = append(notes, quarantined(r.root)...)
	if r.evidence.ended() {
		for _, note := range r.evidence.result.Notes {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// unread estimates the size of the files that were not opened yet. Such files exist if there are many ranks, because
// not every rank has had its turn to read. The files of all ranks have about the same size.
func (r *Run) unread() int64 {
	known, files, left := int64(0), int64(0), int64(0)
	for _, k := range r.ranks {
		if k.tail.Found() {
			known, files = known+k.tail.Size, files+1
		} else {
			left++
		}
	}
	left -= int64(len(r.missing))
	return known / max(files, 1) * max(left, 0)
}

// steps returns the range of recorded steps, or 0 and 0 if there are none.
func (r *Run) steps() (first, last int64) {
	if len(r.ranks) == 0 || !r.ranks[0].found {
		return 0, 0
	}
	g := r.ranks[0].grid
	for i, p := range g.place {
		if p.offset >= 0 {
			return int64(i)*g.width + 1, r.ranks[0].last.Iteration
		}
	}
	return 0, 0
}
