package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

var (
	// ErrDiverged ends a run whose gradients remain NaN or infinite, or whose last evaluation is NaN or infinite.
	ErrDiverged = replica.ErrDiverged
	// ErrFinalSave ends a run whose final save failed.
	ErrFinalSave = errors.New("the final save failed")

	errUnreadable = errors.New("cannot be read")
)

// Result describes how a run ended.
type Result struct {
	Steps       int64
	Epochs      float64
	Interrupted bool    // the context was cancelled; the run is saved and can be resumed
	Survived    bool    // another rank or the data failed; rank 0 saved the last complete step
	OutOfTime   bool    // MaxDuration was reached; the run is saved and can be resumed
	GaveUp      string  // reason of EarlyStop; "" if early stopping did not end the run
	LastLoss    float64 // mean loss over the global batch of the last step; NaN before the first step
	LastEval    *Evaluation
	Best        *checkpoint.Best
	SamplesSeen int64         // number of samples over the whole run
	Checkpoint  string        // path of the last checkpoint that this process saved; "" if none
	Samples     int64         // number of samples that this process trained, over all ranks, including repeated steps
	TrainTime   time.Duration // training time of this process, including repeated steps; see Trained
	Trained     Trained       // steps of the whole run
	Skipped     int64         // number of steps over the whole run that were skipped because of NaN or Inf
	RollBacks   int64
	Replaced    int64 // number of unreadable samples over the whole run and all ranks; repeated steps count once
}

// Trained sums up the steps of a run, over all its processes. Steps that the run repeats count once, and steps of
// another run, from whose checkpoint the run started, do not count.
//
// Time is the training time. A step lasts from the end of the previous step to its own end, so gaps between steps
// count: the work of observers, changes of shares. The time of a step does not include what happens between two steps
// and is not training: evaluations, the part of a save that training waits for, comparisons of the ranks' parameters,
// returns to a checkpoint, Options.BeforeStep, and the time before the first step of a process.
//
// Trained covers the last Steps steps of the run. These are not all steps if the run started from a checkpoint of
// another run.
type Trained struct {
	Steps   int64         `json:"steps"`
	Samples int64         `json:"samples"` // over all ranks
	Time    time.Duration `json:"time_ns"`
}

// run is the state of a call of Run.
type run struct {
	Options
	schedule    optim.Schedule // with the length of the run
	interrupted func() bool    // this rank got a signal
	start       time.Time
	step        int64
	first       int64 // step at which this process began
	end         int64 // last step of the run; 0 if unknown
	epochSteps  int64
	skew        int64 // position in the epochs, in steps, minus step; not 0 after a change of the batch size
	seen        int64 // number of samples over the whole run
	lastSave    time.Time
	savedStep   int64
	saving      chan written // receives the result of the save in progress; nil if none
	nanRow      int          // number of consecutive skipped steps
	answered    int64        // number of save requests that were honoured
	stopping    stopping
	compared    comparison
	lineage     checkpoint.Compared
	unsound     bool // the replica's weights and this state belong to different steps
	evalOwed    bool // an evaluation of this step is due
	asked       wish // wishes of all ranks after the last step, combined
	alone       [1]RankStep
	changed     bool              // the next step is the first with new shares
	noted       string            // notes of the device logged so far
	sinceChange int               // number of steps with the current shares
	reports     *reports          // nil for a single rank
	latest      RankStep          // of this rank in the step in progress
	before      replica.StepTimes // times of this rank's previous step
	ended       time.Time         // end of the previous step
	apart       time.Duration     // time since ended that does not count as training; see pause
	paused      bool              // between a call of pause and the end of the pause
	took        time.Duration     // training time of the last step
	trained     Trained
	reported    []RankStep // reports of the last step; equal on all ranks
	ranks       []RankStep // as reported, but with this rank's values of the last step
	replaced    int        // number of unreadable samples of this epoch
	result      Result
	record      StepRecord
}

// Run trains to the end, or until ctx is cancelled on any rank. If Run returns an error, the result is valid up to
// the last step. A rank that fails sends its error to the other ranks.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	runtime.LockOSThread() // OpenMP teams and CUDA contexts belong to an OS thread
	defer runtime.UnlockOSThread()
	r := &run{Options: o, schedule: o.Schedule, interrupted: func() bool { return ctx.Err() != nil }, start: time.Now(),
		savedStep: -1, result: Result{LastLoss: math.NaN()}}
	r.lastSave, r.compared.step, r.lineage.Ranks = r.start, -1, r.group().Size()
	r.epochSteps = int64(o.Train.BatchesPerEpoch() / o.Replica.Options().Accumulation)
	whole := context.WithoutCancel(ctx)
	resume, err := r.meet(whole)
	defer func() { err = errors.Join(err, r.reports.close()) }()
	if err != nil {
		r.group().Abort(err)
		r.group().Drain()
		return r.result, err
	}
	if err = r.begin(whole, resume); err == nil {
		err = r.train(ctx)
	}
	r.leaving()
	r.settleSave()
	if err != nil && !errors.Is(err, errUnreadable) { // all ranks have the error errUnreadable, and have left together
		r.group().Abort(err)
		r.group().Drain()
		err = r.survive(err)
	}
	r.result.Steps, r.result.SamplesSeen, r.result.Trained = r.step, r.seen, r.trained
	r.result.Epochs = float64(r.position()) / float64(r.epochSteps)
	return r.result, err
}

// position returns the run's position in its epochs, in steps of the current batch size.
func (r *run) position() int64 { return r.step + r.skew }

// jump moves the loader to the batches of the next step.
func (r *run) jump() error {
	return errors.Join(r.Replica.Discard(), r.Train.JumpTo(r.position()*int64(r.Replica.Options().Accumulation)))
}

func (r *run) train(ctx context.Context) error {
	whole := context.WithoutCancel(ctx) // not cancelled, so that an interrupted run finishes its step
	if err := r.jump(); err != nil {
		return err
	}
	if err := r.tooManyReplaced(); err != nil {
		return err
	}
	if err := r.evaluateIfOwed(ctx); err != nil {
		return err
	}
	for r.end == 0 || r.step < r.end {
		r.pollSave()
		want := r.wishes()
		if want.stop {
			break
		}
		if r.stopping.over(r.EarlyStop) {
			r.result.GaveUp = r.stopping.reason(r.EarlyStop)
			return r.finish(whole)
		}
		if want.timeOver {
			r.result.OutOfTime = true
			return r.finish(whole)
		}
		if err := r.split(); err != nil {
			return err
		}
		if r.BeforeStep != nil {
			resume := r.pause()
			r.BeforeStep(r.step + 1)
			resume()
		}
		wentBack, err := r.oneStep(ctx, whole)
		if err != nil {
			return err
		}
		if !wentBack { // after a roll-back, the checkpoint contains evalOwed
			r.evalOwed = r.evaluationDue()
		}
		if err := r.evaluateIfOwed(ctx); err != nil {
			return err
		}
		if err := r.saveWhenDue(ctx); err != nil {
			return err
		}
		if r.wishes().full {
			if err := r.awaitDisk(ctx, "the records of steps", r.recordsFit); err != nil {
				return err
			}
		}
	}
	r.result.Interrupted = r.wishes().stop && (r.end == 0 || r.step < r.end || r.evalOwed)
	return r.finish(whole)
}

// finish saves the state at the end of the run. It returns an ErrDiverged if the evaluation of this state is not
// finite.
func (r *run) finish(ctx context.Context) error {
	if e := r.result.LastEval; e != nil && e.Step == r.step && !r.result.Interrupted &&
		(math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0)) {
		return r.leaveWith(ctx, fmt.Errorf("%w: the loss of the evaluation after step %d is %v; lower optimizer.lr, set train.clip_norm, or use train.precision = \"f32\"",
			ErrDiverged, r.step, e.Loss))
	}
	return r.leave(ctx)
}

// leave saves the state, after the ranks have checked that all of them have the same state.
func (r *run) leave(ctx context.Context) error {
	if err := r.compare(ctx, false); err != nil {
		return err
	}
	if err := r.compareData(ctx, true); err != nil {
		return err
	}
	r.leaving()
	return r.finalSave()
}

// compareData compares the data that the ranks have read so far. It is unknown since when the data differ, so a
// difference hides all checkpoints that this process has saved. The comparisons of earlier processes found no
// difference.
func (r *run) compareData(ctx context.Context, whole bool) error {
	if r.CompareData == nil {
		return nil
	}
	err := r.CompareData(ctx, whole)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("step %d: %w", r.step, err)
	if !errors.Is(err, data.ErrDiffers) {
		return err
	}
	return r.hide(r.first, fmt.Errorf("%w; the steps after step %d may have been trained on a mixture, so the same command resumes from the newest checkpoint up to step %d, or starts again",
		err, r.first, r.first))
}

// leaving calls Options.Leaving.
func (r *run) leaving() {
	if r.Leaving != nil {
		r.Leaving()
	}
}

// leaveWith ends the run with an error that all ranks have. No rank exits before rank 0 has saved, because the loss
// of a rank would also end rank 0.
func (r *run) leaveWith(ctx context.Context, cause error) error {
	err := errors.Join(cause, r.leave(ctx))
	return errors.Join(err, r.group().Barrier(ctx, "leave"))
}

// oneStep trains one step. After too many consecutive steps without finite gradients, it rolls back to an earlier
// step.
func (r *run) oneStep(ctx, whole context.Context) (wentBack bool, err error) {
	rate := r.rate()
	out, err := r.timedStep(whole)
	if err != nil {
		return false, r.saveUntouched(fmt.Errorf("step %d: %w", r.step+1, err), out)
	}
	ranks := r.together(&out)
	out.Sums = total(ranks)
	at := r.position() // position of this step, from 0
	r.step++
	r.seen += int64(out.Samples)
	r.result.Samples += int64(out.Samples)
	r.result.TrainTime += r.took
	r.trained = Trained{r.trained.Steps + 1, r.trained.Samples + int64(out.Samples), r.trained.Time + r.took}
	r.result.LastLoss = out.Score().Loss
	if out.Updated {
		r.nanRow = 0
	} else {
		r.result.Skipped++
		if !out.Lowered { // after Lowered, the next step uses a lower loss scale
			r.nanRow++
		}
	}
	r.record = StepRecord{StepResult: out, Took: r.took, Trained: r.trained, Ranks: ranks,
		Shares: r.Replica.Shares().All(), Changed: r.changed, Step: r.step, Total: r.end, Epoch: int(at / r.epochSteps),
		EpochStep: int(at%r.epochSteps) + 1, EpochSteps: int(r.epochSteps), Rate: rate, Skipped: r.result.Skipped,
		Time: time.Now()}
	r.changed = false
	if r.asked.compare {
		if err := r.compare(whole, false); err != nil {
			return false, err
		}
	}
	r.countReplaced()
	r.Observer.StepDone(&r.record)
	r.tellNotes()
	if err := r.tooManyReplaced(); err != nil {
		return false, r.leaveWith(whole, err)
	}
	if r.nanRow >= r.NaNPatience {
		return true, r.rollBack(ctx, whole)
	}
	return false, nil
}

// tellNotes logs the notes of the device about the programs for the current shares. It does so in the second step
// with these shares, after all programs have run.
func (r *run) tellNotes() {
	r.sinceChange++
	d, ok := r.Replica.Device().(device.Noting)
	if !ok || r.sinceChange != 2 {
		return
	}
	if notes := d.Notes(); notes != r.noted {
		r.noted = notes
		r.Observer.Warn(fmt.Errorf("device %s: %s", r.Replica.Device().Info().Name, notes))
	}
}

// timedStep trains one step, and measures its training time.
func (r *run) timedStep(whole context.Context) (out replica.StepResult, err error) {
	begun := time.Now()
	r.latest = RankStep{}
	if !r.ended.IsZero() {
		r.latest.Other = max(begun.Sub(r.ended)-r.apart, 0)
	}
	out, err = r.Replica.Step(whole, r.Train, replica.StepOptions{Rate: r.rate(), Norms: r.NormsInterval > 0 &&
		(r.step+1)%r.NormsInterval == 0, Exchange: r})
	if r.group() == nil {
		r.describe(&out)
		r.reported = append(r.reported[:0], r.latest)
	}
	r.ended, r.apart = time.Now(), 0
	r.took = r.latest.Other + r.ended.Sub(begun)
	return out, err
}

// rate returns the learning rate of the next step.
func (r *run) rate() float64 { return r.schedule.Rate(int(r.position())) }

// describe sets those fields of this rank's latest RankStep that are already known.
func (r *run) describe(out *replica.StepResult) {
	own := &r.latest
	own.Sums, own.Times, own.Telemetry, own.Links, own.Replaced = out.Sums, out.Times, telemetry.Unknown(),
		unknownLinks(), out.Replaced
	own.Positions = out.Positions
	if r.Telemetry != nil {
		own.Telemetry = r.Telemetry()
	}
	if r.Links != nil {
		own.Links = r.Links()
	}
}

// pause starts a pause of training. The caller calls the result at the end of the pause. The time between both calls
// does not count as training time. A pause within a pause has no effect.
func (r *run) pause() (end func()) {
	if r.paused {
		return func() {}
	}
	begun := time.Now()
	r.paused = true
	return func() {
		r.apart += time.Since(begun)
		r.paused = false
	}
}
