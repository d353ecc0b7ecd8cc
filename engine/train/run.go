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
)

var (
	// ErrDiverged ends a run whose gradients stay NaN or infinite.
	ErrDiverged = errors.New("training diverged")
	// ErrFinalSave ends a run that could not be saved at its end.
	ErrFinalSave = errors.New("the final save failed")

	errUnreadable = errors.New("cannot be read")
)

// Options are what a run needs beside its replica. Zero intervals switch off what they time.
type Options struct {
	Replica  *Replica
	Train    *data.Loader // training batches; Run jumps to where the run starts
	Eval     *data.Loader // nil: no evaluation
	Store    *checkpoint.Store
	StoreDir string // of Store
	Observer Observer

	Schedule     optim.Schedule // its Total is set by Run
	Steps        int64          // optimizer steps of the whole run; 0: as many as Epochs have
	Epochs       int            // 0, with Steps 0: until MaxDuration
	MaxDuration  time.Duration
	EvalInterval int  // epochs
	EvalAverage  bool // evaluations are of the averaged weights, where there are averages

	EarlyStop EarlyStop
	// NormsInterval: each so many steps the record holds norms of single parameters, if the replica measures them; 0: never.
	NormsInterval int64

	SaveSteps    int64 // checkpoint each so many steps
	SaveInterval time.Duration
	// SaveRequests counts what asked for a checkpoint so far, on this rank: a signal. One rank that was asked has the run saved. nil: nothing does.
	SaveRequests func() int64
	// SaveAgreed is told on every rank that a checkpoint is made because one of them was asked for it; may be nil.
	SaveAgreed func()
	Beside     bool // checkpoints in mid-run are written while training goes on
	KeepBest   bool

	NaNPatience  int // skipped steps in a row before a roll-back
	NaNRollbacks int // roll-backs before ErrDiverged

	// Splitter decides the shares of the ranks; nil: they stay as they are.
	Splitter Splitter
	// Enough ends the run before the next step; it says the same on all ranks. nil: never.
	Enough func() bool
	// BeforeStep is called before each optimizer step, counted from 1, on the training goroutine; its time is no part of the
	// step's. May be nil.
	BeforeStep func(step int64)
	// CompareSteps is how often the ranks compare hashes of their parameters, in steps; 0: never.
	CompareSteps int64
	// Load tells how the device fares, once a step; nil: nothing is known. It starts from UnknownLoad and must not wait for anything.
	Load func() Load

	// MaxReplaced is how many samples of an epoch or of an evaluation, over all ranks, may be replaced because they cannot be read (data.Skip); more
	// end the run with a *data.Fault, on all ranks after the same step, saved; resumed it ends at once. 0: any number.
	MaxReplaced int

	// State of the checkpoint to go on from, already loaded into the replica; nil starts anew. With peers it is rank 0's that
	// counts, state and weights alike.
	Resume *checkpoint.State
	// Foreign: Resume is another run's checkpoint, so that this run has none of its own yet.
	Foreign bool
	// Leaving is called when the last step is done, before what the run holds is saved; possibly more than once. May be nil.
	Leaving func()
	// Template is the checkpoint state's part that Run does not know: program, configuration, seed.
	Template checkpoint.State
}

// Splitter decides the shares of the ranks. It runs on every rank and answers the same on all.
type Splitter interface {
	// Split is asked before every optimizer step for the samples of a micro-batch that each rank shall have, nil for no change. step is the steps
	// done, ranks what the last one was like on each, in the same bits everywhere, as they reported it; nil before the first. It is valid during the
	// call only.
	//
	// While a change is under way the answer does not count, and settling is true: each rank plans for its new share beside training, and
	// when all are ready, which may be some steps later, they change at the same step.
	Split(step int64, ranks []RankStep, settling bool) []int
}

// Result is how a run ended.
type Result struct {
	Steps       int64
	Epochs      float64
	Interrupted bool    // the context was cancelled: saved, to be resumed
	Survived    bool    // the error came from another rank, or from data: rank 0 has saved the last step that all ranks had done
	OutOfTime   bool    // MaxDuration was reached: likewise
	GaveUp      string  // why EarlyStop ended the run; "": it did not
	LastLoss    float64 // mean over the global batch of the last step
	LastEval    *Evaluation
	Best        *checkpoint.Best
	SamplesSeen int64         // over the whole run
	Checkpoint  string        // path of the last one saved in this process, "" if none was
	Samples     int64         // trained on in this process
	TrainTime   time.Duration // of those steps, evaluation and saving left out
	Skipped     int64         // steps skipped for NaN or Inf, over the whole run
	RollBacks   int64
	Replaced    int64 // samples that could not be read, over the whole run and all ranks; a step that a roll-back repeats counts once
}

// run is the state of Run.
type run struct {
	Options
	start       time.Time
	step        int64
	end         int64 // step at which the run is done, 0 if unknown
	epochSteps  int64
	skew        int64 // position in the epochs, counted in steps, minus step: not 0 once the batch size has changed
	seen        int64 // samples, over the whole run
	lastSave    time.Time
	savedStep   int64
	saving      chan written // the save that is under way, nil if none is
	nanRow      int          // skipped steps in a row
	answered    int64        // of SaveRequests
	stopping    stopping
	unsound     bool // the replica holds another step's state than step says
	evalOwed    bool // the evaluation of this step is due, but not done
	asked       wish // what the ranks agreed on after the last step
	alone       [1]RankStep
	change      *change       // of shares that is under way; nil if none is
	changed     bool          // with the step that follows
	noted       string        // what the device has noted so far
	sinceChange int           // steps with these shares
	before      StepTimes     // of this rank's last step
	ended       time.Time     // when that step was, or what followed it and is no part of training
	apart       time.Duration // since then, in BeforeStep
	reported    []RankStep    // the last step's parts as the ranks reported them: the same on all
	ranks       []RankStep    // this rank's in all its parts
	replaced    int           // samples of this epoch that could not be read
	result      Result
	record      StepRecord
}

// Run trains to the end, or until ctx is cancelled on any rank. The result is valid, as far as the run got, with an error too. The other
// ranks of a run that fails are told why.
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
	if err != nil && !errors.Is(err, errUnreadable) { // which all ranks know, and have left together
		o.Replica.opts.Peers.Abort(err)
		o.Replica.opts.Peers.Drain()
		err = r.survive(err)
	}
	r.result.Steps, r.result.SamplesSeen = r.step, r.seen
	r.result.Epochs = float64(r.position()) / float64(r.epochSteps)
	return r.result, err
}

// position is where the run stands in its epochs, in steps of the batch size that it has now.
func (r *run) position() int64 { return r.step + r.skew }

// jump goes to the batches of the step that follows.
func (r *run) jump() error {
	return errors.Join(r.Replica.forget(), r.Train.JumpTo(r.position()*int64(r.Replica.opts.Accumulation)))
}

func (r *run) train(ctx context.Context) error {
	whole := context.WithoutCancel(ctx) // for what is not cancelled: interrupting a run finishes the step
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
		if r.Enough != nil && r.Enough() {
			return r.leave(whole)
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
		if !wentBack { // else what is owed comes from the checkpoint
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

// leave saves what the ranks hold, once it is known to be the same.
func (r *run) leave(ctx context.Context) error {
	if r.peers() != nil {
		if err := r.Replica.checkReplicas(ctx); err != nil {
			return fmt.Errorf("step %d: %w", r.step, err)
		}
	}
	r.leaving()
	return r.finalSave()
}

// leaving tells that the run is about to end.
func (r *run) leaving() {
	if r.Leaving != nil {
		r.Leaving()
	}
}

// leaveWith leaves with an error that all ranks have. None of them is gone before rank 0 has saved: that would end rank 0, too.
func (r *run) leaveWith(ctx context.Context, cause error) error {
	err := errors.Join(cause, r.leave(ctx))
	if r.peers() != nil {
		err = errors.Join(err, r.Replica.checkReplicas(ctx))
	}
	return err
}

// oneStep trains one step and deals with gradients that are not finite, in the end by going back to an earlier step.
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
	r.result.LastLoss = out.Loss / float64(out.Samples)
	if out.Updated {
		r.nanRow = 0
	} else {
		r.result.Skipped++
		if !out.Lowered { // else the next step has a lower scale
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

// tellNotes passes on what the device has noted of the programs for these shares: in the second step with them, when all have run.
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

// countReplaced adds up the samples that could not be read, over all ranks: the same on each.
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

// tooManyReplaced is the error of an epoch with more unreadable samples than MaxReplaced.
func (r *run) tooManyReplaced() error {
	if r.MaxReplaced == 0 || r.replaced <= r.MaxReplaced {
		return nil
	}
	return r.unreadable(r.replaced, fmt.Sprintf("epoch %d up to step %d", (r.position()-1)/r.epochSteps, r.step))
}

func (r *run) unreadable(n int, of string) error {
	return &data.Fault{Op: "read samples", Index: -1, Err: fmt.Errorf("%d of %s %w, want at most %d", n, of, errUnreadable, r.MaxReplaced),
		Advice: "hetero-train data verify lists them; a larger data.corrupt_limit continues the run"}
}

// passes trains one step on this rank's samples and sums over ranks.
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
	err = r.Replica.update(whole, r.Train, rate, r.NormsInterval > 0 && (r.step+1)%r.NormsInterval == 0, &out)
	if r.peers() == nil {
		r.describe(&own, &out)
		r.reported = append(r.reported[:0], own)
	}
	r.leaveOut()
	return own, out, err
}

// describe fills in this rank's part of a step, as far as it is known.
func (r *run) describe(own *RankStep, out *StepResult) {
	own.Sums, own.Times, own.Load, own.Replaced = out.Sums, out.Times, UnknownLoad(), out.Replaced
	if r.Load != nil {
		own.Load = r.Load()
	}
}

// leaveOut makes what was done up to now no part of RankStep.Other.
func (r *run) leaveOut() { r.ended, r.apart = time.Now(), 0 }
