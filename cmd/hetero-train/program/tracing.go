package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// traceFile is the timeline in the folder of logs.
const traceFile = "trace.json"

// What the timeline of a rank may take: it goes to rank 0 as one message, and all together are held there at once.
const (
	mostPacked      = 900 << 10
	mostPackedOfAll = 24 << 20
	packedPatience  = time.Minute
)

// tracing records a window of steps on every rank and writes the timeline of all on rank 0.
type tracing struct {
	job        *Run
	first, end int64 // steps
	rec        *timeline.Recorder
	notes      *noting // of the device itself; nil: there are none
	ready      bool    // it was asked for them
	done       bool
}

// newTracing is nil where the configuration asks for no steps.
func newTracing(j *Run) *tracing {
	p := j.cfg.Profile
	if p.TraceStep == 0 {
		return nil
	}
	return &tracing{job: j, first: int64(p.TraceStep), end: int64(p.TraceStep) + int64(p.TraceSteps)}
}

// before begins and ends the window. All ranks come to it before the same steps.
func (t *tracing) before(step int64) {
	switch {
	case t == nil || t.done:
	case !t.ready && step == t.first-1: // in which the device makes its graphs anew
		t.prepare()
	case t.rec == nil && step >= t.first && step < t.end:
		t.prepare()
		t.rec = t.notes.recorder(step)
		if err := t.job.replica.Trace(t.rec); err != nil { // the window ends all the same: the other ranks gather then
			t.job.opts.logOf(logs.ComponentProfiler).Warn(err.Error())
		}
	case t.rec != nil && step >= t.end:
		t.finish(true)
	}
}

// prepare has the device note what it does, where it can.
func (t *tracing) prepare() {
	if t.ready {
		return
	}
	t.ready = true
	var why error
	if t.notes, why = startNoting(t.job.device); why != nil {
		t.job.opts.logOf(logs.ComponentProfiler).Warn("the timeline times launches one by one", "error", why)
	}
}

// over ends the window of a run that ended within it. The ranks of a run that failed do not meet again: rank 0 writes what it has.
func (t *tracing) over(err error) {
	switch {
	case t == nil || t.done:
	case t.rec != nil:
		t.finish(err == nil)
	default:
		if err := t.notes.leave(); err != nil {
			t.job.opts.logOf(logs.ComponentProfiler).Warn(err.Error())
		}
	}
}

// finish writes the timeline. Training does not depend on it.
func (t *tracing) finish(together bool) {
	t.done = true
	log := t.job.opts.logOf(logs.ComponentProfiler)
	if err := t.job.replica.Trace(nil); err != nil {
		log.Warn(err.Error())
	}
	if lost, err := t.notes.finish(t.rec); err != nil {
		log.Warn("the timeline lacks what the device did", "error", err)
	} else if lost > 0 {
		log.Warn("the timeline lacks a part of what the device did", "lost_records", lost)
	}
	ranks, err := t.gather(together)
	if err == nil && t.job.team.leads() {
		path := filepath.Join(t.job.folder.LogDir(), traceFile)
		if err = writeTrace(path, ranks); err == nil {
			all := explained(ranks)
			log.Info("timeline written", "file", path, "steps", all.steps, "ranks", len(ranks), "explained_percent", percent(all.mean), "at_least_percent", percent(all.least))
		}
	}
	if err != nil {
		log.Warn("no timeline", "error", err)
	}
	t.rec = nil
}

// percent rounds a share to a hundredth of a percent.
func percent(share float64) float64 { return math.Round(1e4*share) / 100 }

// gather is the timelines of all ranks that have one, on rank 0.
func (t *tracing) gather(together bool) ([]trace.Rank, error) {
	j := t.job
	own := trace.Rank{Name: j.device.Info().Name + ", " + j.device.Info().Model, Spans: t.rec.Spans()}
	if j.team == nil || !together {
		return []trace.Rank{own}, nil
	}
	members := j.team.group.Members()
	own.Rank = j.team.place.Rank
	own.Host = members[own.Rank].Host
	ctx, cancel := context.WithTimeout(context.Background(), packedPatience)
	defer cancel()
	ranks, err := meetTimelines(ctx, own, min(mostPacked, mostPackedOfAll/len(members)), j.team.group.Gather)
	if !j.team.leads() {
		return nil, err
	}
	for i := range members {
		if err == nil && !slices.ContainsFunc(ranks, func(r trace.Rank) bool { return r.Rank == i }) {
			j.opts.logOf(logs.ComponentProfiler).Warn("a rank sent no timeline", "rank", i)
		}
	}
	return ranks, err
}

// meetTimelines sends a rank's timeline, in at most limit bytes, and is those of all on rank 0. A rank that cannot pack its own sends an empty message, which is
// left out: the others wait for it.
func meetTimelines(ctx context.Context, own trace.Rank, limit int, gather func(context.Context, string, []byte) ([][]byte, error)) ([]trace.Rank, error) {
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

// writeTrace writes a timeline, in one step, with what it explains.
func writeTrace(path string, ranks []trace.Rank) error {
	all := explained(ranks)
	facts := map[string]any{"program": version.Text(), "steps": all.steps, "explained": all.mean, "explained_least": all.least, "started": startOf(ranks)}
	for kind, share := range all.kinds {
		facts[timeline.Kind(kind).String()+"_share"] = share
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

// startOf is when the first span began, by rank 0's clock.
func startOf(ranks []trace.Rank) time.Time {
	first := int64(math.MaxInt64)
	for _, r := range ranks {
		for _, s := range r.Spans {
			first = min(first, s.Begin-r.Offset)
		}
	}
	return time.Unix(0, first).UTC()
}

// explanation is what timelines explain of the steps, over all ranks.
type explanation struct {
	steps       int // of a rank
	mean, least float64
	kinds       [4]float64 // shares of all steps' time, by kind
	gap         float64
	times       []time.Duration // of the steps, sorted
}

func explained(ranks []trace.Rank) explanation {
	x := explanation{least: 1}
	total, gap := int64(0), int64(0)
	var kinds [4]int64
	for _, r := range ranks {
		steps := timeline.Explain(r.Spans)
		x.steps = max(x.steps, len(steps))
		for _, e := range steps {
			x.least = min(x.least, e.Explained())
			x.times = append(x.times, time.Duration(e.Total))
			total, gap = total+e.Total, gap+e.Gap
			for k, ns := range e.Kinds {
				kinds[k] += ns
			}
		}
	}
	if total == 0 {
		x.least = 0
		return x
	}
	for k, ns := range kinds {
		x.kinds[k] = float64(ns) / float64(total)
	}
	x.gap = float64(gap) / float64(total)
	x.mean = 1 - x.gap
	slices.SortFunc(x.times, cmp.Compare[time.Duration])
	return x
}
