package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// TraceFile is the name of the timeline in the folder of log files.
const TraceFile = "trace.json"

// Limits of the encoded timelines, in bytes, and of the time for sending them. Each rank sends its timeline to rank 0
// as one message. Rank 0 holds the timelines of all ranks in memory at the same time.
const (
	mostPacked      = 900 << 10
	mostPackedOfAll = 24 << 20
	packedPatience  = time.Minute
)

// Tracing records the timeline of some successive steps, the window, on every rank. Rank 0 writes the timelines of all
// ranks.
type Tracing struct {
	run        *assembly.Run
	first, end int64 // the window: steps first to end−1
	rec        *timeline.Recorder
	notes      *Noting // recording by the device; nil if the device records nothing
	ready      bool    // true after a call of prepare
	done       bool
}

// NewTracing returns a Tracing, or nil if the configuration selects no steps.
func NewTracing(a *assembly.Run) *Tracing {
	p := a.Process.Cfg.Profile
	if p.TraceStep == 0 {
		return nil
	}
	if a.Rank.Team.Leads() && a.Folder.Checkpoint != nil {
		if missed := MissedTimeline(a, a.Folder.Checkpoint.State.Step); missed != "" {
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn(missed)
		}
	}
	return &Tracing{run: a, first: int64(p.TraceStep), end: int64(p.TraceStep) + int64(p.TraceSteps)}
}

// MissedTimeline returns a message if earlier processes of the run have trained all steps of the window, but there is
// no timeline. Only rank 0 may call it.
func MissedTimeline(a *assembly.Run, trained int64) string {
	p := a.Process.Cfg.Profile
	if p.TraceStep == 0 || trained < int64(p.TraceStep)+int64(p.TraceSteps) {
		return ""
	}
	if _, err := os.Stat(filepath.Join(a.Folder.LogDir(), TraceFile)); err == nil {
		return ""
	}
	return fmt.Sprintf("profile.trace_step = %d has no effect: the run trained this step before, without a timeline",
		p.TraceStep)
}

// Before begins the window if step is its first step, and ends it if step follows it. All ranks must call it before
// every step.
func (t *Tracing) Before(step int64) {
	switch {
	case t == nil || t.done:
	case !t.ready && step == t.first-1: // one step earlier, because the device captures its graphs again in this step
		t.prepare()
	case t.rec == nil && step >= t.first && step < t.end:
		t.prepare()
		t.rec = t.notes.Recorder(step)
		// Continue after an error: finish must run, because the other ranks wait in gather.
		if err := t.run.Replica.Trace(t.rec); err != nil {
			t.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn(err.Error())
		}
	case t.rec != nil && step >= t.end:
		t.finish(true)
	}
}

// prepare starts the recording of the device if the device supports it.
func (t *Tracing) prepare() {
	if t.ready {
		return
	}
	t.ready = true
	var why error
	if t.notes, why = StartNoting(t.run.Rank.Device); why != nil {
		t.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn("the device cannot record its activity, so the timeline contains the times that the host measured for each launch",
			"error", why)
	}
}

// Over ends the window, if it is still open, at the end of the run. After a failure, the ranks do not exchange
// timelines, and rank 0 writes only its own timeline.
func (t *Tracing) Over(err error) {
	switch {
	case t == nil || t.done:
	case t.rec != nil:
		t.finish(err == nil)
	default:
		if err := t.notes.Leave(); err != nil {
			t.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn(err.Error())
		}
	}
}

// finish writes the timeline. It only logs errors, because training does not need the timeline.
func (t *Tracing) finish(together bool) {
	t.done = true
	log := t.run.Process.Opts.LogOf(logs.ComponentProfiler)
	if err := t.run.Replica.Trace(nil); err != nil {
		log.Warn(err.Error())
	}
	if lost, err := t.notes.Finish(t.rec); err != nil {
		log.Warn("the timeline has no device activity", "error", err)
	} else if lost > 0 {
		log.Warn("the timeline contains only a part of the device activity", "lost_records", lost)
	}
	ranks, err := t.gather(together)
	if err == nil && t.run.Rank.Team.Leads() {
		path := filepath.Join(t.run.Folder.LogDir(), TraceFile)
		t.run.Queue.Do(path, 0, func() { // size 0: a run writes at most mostPackedOfAll, only once
			if err := WriteTrace(path, ranks); err != nil {
				log.Warn(unwrittenTimeline, "error", err)
				return
			}
			all := Explained(ranks)
			log.Info("timeline written", "file", path, "steps", all.Steps, "ranks", len(ranks), "explained_percent",
				percent(all.Mean), "at_least_percent", percent(all.Least))
		})
	}
	if err != nil {
		log.Warn(unwrittenTimeline, "error", err)
	}
	t.rec = nil
}

const unwrittenTimeline = "the timeline cannot be written"

// percent rounds a fraction to hundredths of a percent.
func percent(fraction float64) float64 { return math.Round(1e4*fraction) / 100 }

// gather returns the timelines of all ranks that have one, on rank 0 only.
func (t *Tracing) gather(together bool) ([]trace.Rank, error) {
	a := t.run
	own := trace.Rank{Name: a.Rank.Device.Info().Name + ", " + a.Rank.Device.Info().Model, Spans: t.rec.Spans()}
	if a.Rank.Team == nil || !together {
		return []trace.Rank{own}, nil
	}
	members := a.Rank.Team.Group.Members()
	own.Rank = a.Rank.Team.Place.Rank
	own.Host = members[own.Rank].Host
	ctx, cancel := context.WithTimeout(context.Background(), packedPatience)
	defer cancel()
	ranks, err := meetTimelines(ctx, own, min(mostPacked, mostPackedOfAll/len(members)), a.Rank.Team.Group.Gather)
	if !a.Rank.Team.Leads() {
		return nil, err
	}
	for i := range members {
		if err == nil && !slices.ContainsFunc(ranks, func(r trace.Rank) bool { return r.Rank == i }) {
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn("a rank sent no timeline", "rank", i)
		}
	}
	return ranks, err
}

// meetTimelines exchanges the timelines of the ranks, each encoded in at most limit bytes. On rank 0 it returns all
// timelines. A rank that cannot encode its timeline sends an empty message, because the other ranks wait for its
// message. Rank 0 skips empty messages.
func meetTimelines(ctx context.Context, own trace.Rank, limit int,
	gather func(context.Context, string, []byte) ([][]byte, error)) ([]trace.Rank, error) {
	packed, err := trace.Pack(own, limit)
	all, gatherErr := gather(ctx, "timeline", packed)
	if err = errors.Join(err, gatherErr); err != nil || own.Rank != 0 {
		return nil, err
	}
	var ranks []trace.Rank
	for i, text := range all {
		if len(text) == 0 {
			continue
		}
		r, err := trace.Unpack(text)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
		ranks = append(ranks, r)
	}
	trace.Align(ranks)
	return ranks, nil
}

// WriteTrace writes the timelines of ranks to a file, with the fraction of the time that their spans cover. It never
// leaves an incomplete file.
func WriteTrace(path string, ranks []trace.Rank) error {
	all := Explained(ranks)
	facts := map[string]any{"program": version.Text(), "steps": all.Steps, "explained": all.Mean,
		"explained_least": all.Least, "started": startOf(ranks)}
	for kind, fraction := range all.Kinds {
		facts[timeline.Kind(kind).String()+"_share"] = fraction
	}
	offsets := map[string]float64{}
	for _, r := range ranks {
		if r.Offset != 0 {
			offsets[fmt.Sprint(r.Rank)] = float64(r.Offset) / 1e9
		}
	}
	facts["clock_offset_seconds"] = offsets
	return experiment.Replace(path, func(w io.Writer) error { return trace.WriteTimeline(w, ranks, facts) })
}

// startOf returns the start of the earliest span, on the clock of rank 0.
func startOf(ranks []trace.Rank) time.Time {
	first := int64(math.MaxInt64)
	for _, r := range ranks {
		for _, s := range r.Spans {
			first = min(first, s.Begin-r.Offset)
		}
	}
	return time.Unix(0, first).UTC()
}

// explanation states which fraction of the time of all steps, on all ranks, the spans of the timelines cover.
type explanation struct {
	Steps       int // number of steps of one rank
	Mean, Least float64
	Kinds       [4]float64 // fraction of the time of all steps, by kind of span
	Gap         float64
	Times       []time.Duration // step times, in ascending order
}

// Explained computes the explanation of the timelines of ranks.
func Explained(ranks []trace.Rank) explanation {
	x := explanation{Least: 1}
	total, gap := int64(0), int64(0)
	var kinds [4]int64
	for _, r := range ranks {
		steps := timeline.Explain(r.Spans)
		x.Steps = max(x.Steps, len(steps))
		for _, e := range steps {
			x.Least = min(x.Least, e.Explained())
			x.Times = append(x.Times, time.Duration(e.Total))
			total, gap = total+e.Total, gap+e.Gap
			for k, ns := range e.Kinds {
				kinds[k] += ns
			}
		}
	}
	if total == 0 {
		x.Least = 0
		return x
	}
	for k, ns := range kinds {
		x.Kinds[k] = float64(ns) / float64(total)
	}
	x.Gap = float64(gap) / float64(total)
	x.Mean = 1 - x.Gap
	slices.SortFunc(x.Times, cmp.Compare[time.Duration])
	return x
}
