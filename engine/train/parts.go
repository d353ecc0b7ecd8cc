package train

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/gradsync"
)

// run is the state of one call of Run. A part uses other parts only through its fields.
type run struct {
	Options
	at       progress
	clock    stopwatch
	ranks    consensus
	saves    saver
	compares comparer
	evals    evaluator
	shares   divider

	interrupted func() bool // this rank got a signal
	start       time.Time
	answered    int64 // number of save requests that were honoured
	unsound     bool  // the replica's weights and this state belong to different steps
	record      StepRecord
	result      Result // without the values that the parts hold; see outcome
}

// newRun connects the parts of a run. The function interrupted reports whether this rank got a signal.
func newRun(o Options, interrupted func() bool) *run {
	r := &run{Options: o, interrupted: interrupted, start: time.Now()}
	m := o.Replica
	r.at = newProgress(o.Schedule, int64(o.Train.BatchesPerEpoch()/m.Options().Accumulation))
	r.ranks = consensus{group: m.Group(), at: &r.at, own: r.wish, telemetry: o.Telemetry, links: o.Links}
	r.saves = saver{store: o.Store, observer: o.Observer, disk: o.Disk, ranks: &r.ranks, leaving: o.Leaving,
		every: o.SaveSteps, interval: o.SaveInterval, begun: r.start, step: -1}
	if o.Disk == nil {
		r.saves.disk = noDisk{}
	}
	if o.Leaving == nil {
		r.saves.leaving = func() {}
	}
	r.compares = comparer{replica: m, ranks: &r.ranks, at: &r.at, clock: &r.clock, saves: &r.saves, beside: o.Beside,
		every: o.CompareSteps, share: o.CompareShare, data: o.CompareData}
	r.compares.last.step, r.compares.lineage.Ranks = -1, r.group().Size()
	r.evals = evaluator{replica: m, loader: o.Eval, ranks: &r.ranks, at: &r.at,
		interval: o.EvalInterval, average: o.EvalAverage, metric: o.BestMetric,
		maxReplaced: o.MaxReplaced, early: o.EarlyStop}
	r.shares = divider{splitter: o.Splitter, replica: m, loader: o.Train, ranks: &r.ranks, at: &r.at,
		version: m.Shares().Version()}
	return r
}

// group returns the group of the ranks that train together, or nil for a single rank.
func (r *run) group() *gradsync.Group { return r.ranks.group }

// wish returns this rank's requests after the given step. Only rank 0 checks the time limit, whether a save or a
// comparison is due, and the state of its disk. It returns an error if the plans for new shares cannot be compiled.
func (r *run) wish(step int64) (w wish, err error) {
	leads := r.ranks.leads()
	w = wish{stop: r.interrupted(), timeOver: r.MaxDuration > 0 && leads && time.Since(r.start) >= r.MaxDuration,
		save: r.requests() > r.answered, due: r.saves.due(step), compare: r.compares.due(step),
		saving: !r.saves.settled(), full: !r.recordsFit()}
	w.unready, w.change, err = r.Replica.Shares().Vote()
	return w, err
}

// requests returns the number of save requests on this rank.
func (r *run) requests() int64 {
	if r.SaveRequests == nil {
		return 0
	}
	return r.SaveRequests()
}

// recordsFit reports whether this rank can hold the records of further steps.
func (r *run) recordsFit() bool { return !r.ranks.leads() || !r.saves.disk.Full() }

// outcome returns the result with the values that the parts hold.
func (r *run) outcome() Result {
	out, at := r.result, &r.at
	out.Steps, out.SamplesSeen, out.Trained, out.LastLoss = at.step, at.seen, at.trained, at.lastLoss
	out.Epochs = float64(at.position()) / float64(at.epochSteps)
	out.Skipped, out.RollBacks, out.Replaced = at.skipped, at.rollBacks, at.replaced
	out.LastEval, out.Best, out.Checkpoint = r.evals.last, r.evals.best, r.saves.path
	return out
}
