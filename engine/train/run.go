package train

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/telemetry"
)

var (
	// ErrDiverged ends a run whose gradients stay NaN or infinite.
	ErrDiverged = errors.New("training diverged")
	// ErrFinalSave ends a run whose final save failed.
	ErrFinalSave = errors.New("the final save failed")

	errUnreadable = errors.New("cannot be read")
)

// Options configure a run. A zero interval turns its action off.
type Options struct {
	Replica  *Replica
	Train    *data.Loader // training batches; Run moves it to the first batch of the run
	Eval     *data.Loader // nil: no evaluation
	Store    *checkpoint.Store
	StoreDir string // of Store
	Observer Observer

	Schedule     optim.Schedule // Run sets its Total
	Steps        int64          // optimizer steps of the whole run; 0: the steps of Epochs
	Epochs       int            // 0, with Steps 0: until MaxDuration
	MaxDuration  time.Duration
	EvalInterval int  // epochs
	EvalAverage  bool // evaluate the averaged weights, if there are averages

	EarlyStop EarlyStop
	// NormsInterval is the number of steps between records with norms of single parameters, if the replica measures
	// them; 0: never.
	NormsInterval int64

	SaveSteps    int64 // steps between checkpoints
	SaveInterval time.Duration
	// SaveRequests returns the number of requests for a checkpoint (signals) on this rank so far. A request on one rank
	// saves the run. nil: no requests.
	SaveRequests func() int64
	// SaveAgreed is called on every rank when a checkpoint is made because of such a request; may be nil.
	SaveAgreed func()
	Beside     bool // write checkpoints in mid-run in the background
	KeepBest   bool

	NaNPatience  int // consecutive skipped steps before a roll-back
	NaNRollbacks int // roll-backs before ErrDiverged

	// Splitter decides the shares of the ranks; nil: shares are fixed.
	Splitter Splitter
	// BeforeStep is called before each optimizer step, counted from 1, on the training goroutine. Its time is no part
	// of the step's. May be nil.
	BeforeStep func(step int64)
	// CompareSteps is the number of steps between comparisons of the ranks' parameter hashes; 0: never.
	CompareSteps int64
	// Telemetry returns the sample of this rank's sensors, once per step. It must not block. nil: no telemetry.
	Telemetry func() telemetry.Sample

	// MaxReplaced is the largest number of samples of an epoch or an evaluation, over all ranks, that may be replaced
	// because they cannot be read (data.Skip). More end the run with a *data.Fault, saved, on all ranks after the same
	// step. Such a run ends at once when resumed. 0: no limit.
	MaxReplaced int

	// Resume is the state of the checkpoint to resume from, already loaded into the replica; nil starts a new run. With
	// peers, rank 0's state and weights apply to all ranks.
	Resume *checkpoint.State
	// Foreign states that Resume is another run's checkpoint, so this run has no checkpoint of its own yet.
	Foreign bool
	// Leaving is called after the last step and before the final save, possibly more than once. May be nil.
	Leaving func()
	// Template holds the fields of the checkpoint's state that Run does not know: program, configuration, seed.
	Template checkpoint.State
}

// Splitter decides the shares of the ranks. It runs on every rank and returns the same shares on all.
type Splitter interface {
	// Split returns the samples of a micro-batch for each rank, or nil for no change. It is called before every
	// optimizer step. step is the number of steps done. ranks are the ranks' reports of the last step, with equal bits
	// on all ranks; nil before the first step. ranks is valid only during the call.
	//
	// settling is true while a change is in progress, and the result is then ignored. Each rank plans for its new share
	// in the background. Some steps later, when all are ready, all switch at the same step.
	Split(step int64, ranks []RankStep, settling bool) []int
}

// Result describes how a run ended.
type Result struct {
	Steps       int64
	Epochs      float64
	Interrupted bool    // the context was cancelled; saved, can be resumed
	Survived    bool    // another rank or the data failed; rank 0 saved the last complete step
	OutOfTime   bool    // MaxDuration was reached; saved, can be resumed
	GaveUp      string  // reason of EarlyStop; "": it did not end the run
	LastLoss    float64 // mean over the global batch of the last step
	LastEval    *Evaluation
	Best        *checkpoint.Best
	SamplesSeen int64         // over the whole run
	Checkpoint  string        // path of the last checkpoint saved by this process, "" if none
	Samples     int64         // unreadable samples over the whole run and all ranks; repeated steps count once
	TrainTime   time.Duration // of those steps, without evaluation and saving
	Skipped     int64         // steps skipped for NaN or Inf, over the whole run
	RollBacks   int64
	Replaced    int64 // unreadable samples over the whole run and all ranks; a step repeated after a roll-back counts once
}

// run is the state of Run.
type run struct {
	Options
	start       time.Time
	step        int64
	end         int64 // last step of the run, 0 if unknown
	epochSteps  int64
	skew        int64 // position in the epochs, in steps, minus step; not 0 after a change of the batch size
	seen        int64 // samples, over the whole run
	lastSave    time.Time
	savedStep   int64
	saving      chan written // the save in progress, nil if none
	nanRow      int          // consecutive skipped steps
	answered    int64        // SaveRequests that were honoured
	stopping    stopping
	unsound     bool // the replica's state is not of this step
	evalOwed    bool // this step's evaluation is due, but not done
	asked       wish // what the ranks agreed on after the last step
	alone       [1]RankStep
	change      *change       // change of shares in progress; nil if none
	changed     bool          // the next step uses new shares
	noted       string        // the device's notes so far
	sinceChange int           // steps with these shares
	before      StepTimes     // of this rank's previous step
	ended       time.Time     // end of the previous step, or of later work that is no part of training
	apart       time.Duration // time since ended that BeforeStep took
	reported    []RankStep    // reports of the last step: equal on all ranks
	ranks       []RankStep    // the same, with this rank's part complete
	replaced    int           // unreadable samples of this epoch
	result      Result
	record      StepRecord
}

// Run trains to the end, or until ctx is cancelled on any rank. With an error the result is valid up to the last step.
// A rank that fails sends its cause to the other ranks.
func Run(ctx context.Context, o Options) (Result, error) {
	runtime.LockOSThread() // an OpenMP team and a CUDA context belong to a thread
	defer runtime.UnlockOSThread()
	r := &run{Options: o, start: time.Now(), savedStep: -1}
	r.lastSave = r.start
	r.epochSteps = int64(o.Train.BatchesPerEpoch() / o.Replica.opts.Accumulation)
	resume, err := r.meet(context.WithoutCancel(ctx))
	if err != nil {
		o.Replica.opts.Peers.Abort(err)
		o.Replica.opts.Peers.Drain()
		return r.result, err
	}
	if err = r.begin(resume); err == nil {
		err = r.train(ctx)
	}
	r.leaving()
	r.settleSave()
	if err != nil && !errors.Is(err, errUnreadable) { // all ranks know that error and have left together
		o.Replica.opts.Peers.Abort(err)
		o.Replica.opts.Peers.Drain()
		err = r.survive(err)
	}
	r.result.Steps, r.result.SamplesSeen = r.step, r.seen
	r.result.Epochs = float64(r.position()) / float64(r.epochSteps)
	return r.result, err
}

// position returns the run's position in its epochs, in steps of the present batch size.
func (r *run) position() int64 { return r.step + r.skew }

// jump moves the loader to the batches of the next step.
func (r *run) jump() error {
	return errors.Join(r.Replica.forget(), r.Train.JumpTo(r.position()*int64(r.Replica.opts.Accumulation)))
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
		want := r.wishes(ctx)
		if want.stop {
			break
		}
		if r.stopping.over(r.EarlyStop) {
			r.result.GaveUp = r.stopping.reason(r.EarlyStop)
			return r.leave(whole)
		}
		if want.timeOver {
			r.result.OutOfTime = true
			return r.leave(whole)
		}
		if err := r.split(); err != nil {
			return err
		}
		if r.BeforeStep != nil {
			begun := time.Now()
			r.BeforeStep(r.step + 1)
			r.apart += time.Since(begun)
		}
		wentBack, err := r.oneStep(ctx, whole)
		if err != nil {
			return err
		}
		if !wentBack { // else the checkpoint says whether an evaluation is due
			r.evalOwed = r.evaluationDue()
		}
		if err := r.evaluateIfOwed(ctx); err != nil {
			return err
		}
		if err := r.saveWhenDue(ctx); err != nil {
			r.Observer.Warn(triedAgain(err))
		}
	}
	r.result.Interrupted = r.wishes(ctx).stop && (r.end == 0 || r.step < r.end || r.evalOwed)
	return r.leave(whole)
}

// leave saves the state, after the ranks have checked that it is equal on all.
func (r *run) leave(ctx context.Context) error {
	if r.peers() != nil {
		if err := r.Replica.checkReplicas(ctx); err != nil {
			return fmt.Errorf("step %d: %w", r.step, err)
		}
	}
	r.leaving()
	return r.finalSave()
}

// leaving calls Options.Leaving.
func (r *run) leaving() {
	if r.Leaving != nil {
		r.Leaving()
	}
}

// leaveWith ends the run with an error that all ranks have. No rank exits before rank 0 has saved, because a lost rank
// would end rank 0, too.
func (r *run) leaveWith(ctx context.Context, cause error) error {
	err := errors.Join(cause, r.leave(ctx))
	if r.peers() != nil {
		err = errors.Join(err, r.Replica.checkReplicas(ctx))
	}
	return err
}

// oneStep trains one step. After too many steps without finite gradients it rolls back to an earlier step.
func (r *run) oneStep(ctx, whole context.Context) (wentBack bool, err error) {
	rate := r.Schedule.Rate(int(r.position()))
	own, out, err := r.passes(ctx, whole, rate)
	if err != nil {
		return false, r.saveUntouched(fmt.Errorf("step %d: %w", r.step+1, err), out)
	}
	ranks := r.together(own, &out)
	out.Sums = total(ranks)
	at := r.position() // of this step, from 0
	r.step++
	r.seen += int64(out.Samples)
	r.result.Samples += int64(out.Samples)
	r.result.TrainTime += out.Times.Total()
	r.result.LastLoss = out.Score().Loss
	if out.Updated {
		r.nanRow = 0
	} else {
		r.result.Skipped++
		if !out.Lowered { // else the next step uses a lower scale
			r.nanRow++
		}
	}
	r.record = StepRecord{StepResult: out, Ranks: ranks, Shares: r.peers().shares(), Changed: r.changed, Step: r.step, Total: r.end, Epoch: int(at / r.epochSteps),
		EpochStep: int(at%r.epochSteps) + 1, EpochSteps: int(r.epochSteps), Rate: rate, Skipped: r.result.Skipped, Time: time.Now()}
	r.changed = false
	if r.peers() != nil && r.CompareSteps > 0 && r.step%r.CompareSteps == 0 {
		if err := r.Replica.checkReplicas(whole); err != nil {
			return false, fmt.Errorf("step %d: %w", r.step, err)
		}
		r.leaveOut()
	}
	r.countReplaced()
	r.Observer.StepDone(&r.record)
	r.tellNotes()
	if err := r.tooManyReplaced(); err != nil {
		return false, r.leaveWith(whole, err)
	}
	if r.nanRow >= r.NaNPatience {
		return true, r.rollBack(whole)
	}
	return false, nil
}

// tellNotes logs the device's notes about the programs for these shares in the second step with them, when all have
// run.
func (r *run) tellNotes() {
	r.sinceChange++
	d, ok := r.Replica.dev.(device.Noting)
	if !ok || r.sinceChange != 2 {
		return
	}
	if notes := d.Notes(); notes != r.noted {
		r.noted = notes
		r.Observer.Warn(fmt.Errorf("device %s: %s", r.Replica.dev.Info().Name, notes))
	}
}

// countReplaced adds up the unreadable samples of all ranks; the sum is equal on each.
func (r *run) countReplaced() {
	if r.record.EpochStep == 1 {
		r.replaced = 0
	}
	for _, rank := range r.reported {
		r.replaced += rank.Replaced
		r.result.Replaced += int64(rank.Replaced)
	}
	r.record.EpochReplaced = r.replaced
}

// tooManyReplaced returns the error of an epoch with more unreadable samples than MaxReplaced.
func (r *run) tooManyReplaced() error {
	if r.MaxReplaced == 0 || r.replaced <= r.MaxReplaced {
		return nil
	}
	return r.unreadable(r.replaced, fmt.Sprintf("epoch %d up to step %d", (r.position()-1)/r.epochSteps, r.step))
}

func (r *run) unreadable(n int, of string) error {
	return &data.Fault{Op: "read samples", Index: -1, Err: fmt.Errorf("%d of %s %w, want at most %d", n, of, errUnreadable, r.MaxReplaced),
		Advice: "list them with hetero-train data verify, or raise data.corrupt_limit"}
}

// passes trains one step on this rank's samples and sums the gradients over ranks.
func (r *run) passes(ctx, whole context.Context, rate float64) (own RankStep, out StepResult, err error) {
	if !r.ended.IsZero() {
		own.Other = max(time.Since(r.ended)-r.apart, 0)
	}
	if err := r.Replica.gradient(whole, r.Train, &out); err != nil {
		return own, out, err
	}
	if r.peers() != nil {
		r.describe(&own, &out)
		if err := r.sum(ctx, whole, &own, &out); err != nil {
			return own, out, err
		}
	}
	count := out.Count
	if r.peers() != nil {
		count = total(r.reported).Count
	}
	err = r.Replica.update(whole, r.Train, rate, r.NormsInterval > 0 && (r.step+1)%r.NormsInterval == 0, count, &out)
	if r.peers() == nil {
		r.describe(&own, &out)
		r.reported = append(r.reported[:0], own)
	}
	r.leaveOut()
	return own, out, err
}

// describe sets the fields of this rank's part of a step that are known.
func (r *run) describe(own *RankStep, out *StepResult) {
	own.Sums, own.Times, own.Telemetry, own.Replaced = out.Sums, out.Times, telemetry.Unknown(), out.Replaced
	if r.Telemetry != nil {
		own.Telemetry = r.Telemetry()
	}
}

// leaveOut excludes the time up to now from RankStep.Other.
func (r *run) leaveOut() { r.ended, r.apart = time.Now(), 0 }
