package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/optim"
)

var (
	// ErrDiverged ends a run whose gradients stay NaN or infinite.
	ErrDiverged = errors.New("training diverged")
	// ErrFinalSave ends a run that could not be saved at its end.
	ErrFinalSave = errors.New("the final save failed")
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
	EvalInterval int // epochs

	SaveSteps    int64 // checkpoint each so many steps
	SaveInterval time.Duration
	KeepBest     bool

	NaNPatience  int // skipped steps in a row before a roll-back
	NaNRollbacks int // roll-backs before ErrDiverged

	// Splitter decides the shares of the ranks; nil: they stay as they are.
	Splitter Splitter
	// Load measures what the run takes of the machine, once a step; nil: nothing is known.
	Load func() Load

	// State of the checkpoint to go on from, already loaded into the replica; nil starts anew. With peers it is rank 0's that
	// counts, state and weights alike.
	Resume *checkpoint.State
	// Template is the checkpoint state's part that Run does not know: program, configuration, seed.
	Template checkpoint.State
}

// Splitter is asked before every optimizer step, on every rank, and answers the same on all.
type Splitter interface {
	// Split is the samples of a micro-batch for each rank in the step that follows, nil for no change. ranks is what the last
	// step was like on each, nil before the first.
	Split(step int64, ranks []RankStep) []int
}

// Result is how a run ended.
type Result struct {
	Steps       int64
	Epochs      float64
	Interrupted bool    // the context was cancelled: saved, to be resumed
	OutOfTime   bool    // MaxDuration was reached: likewise
	LastLoss    float64 // mean over the global batch of the last step
	LastEval    *Evaluation
	Best        *checkpoint.Best
	SamplesSeen int64         // over the whole run
	Checkpoint  string        // path of the last one saved in this process, "" if none was
	Samples     int64         // trained on in this process
	TrainTime   time.Duration // of those steps, evaluation and saving left out
	Skipped     int64         // steps skipped for NaN or Inf, over the whole run
	RollBacks   int64
}

// run is the state of Run.
type run struct {
	Options
	start      time.Time
	step       int64
	end        int64 // step at which the run is done, 0 if unknown
	epochSteps int64
	skew       int64 // position in the epochs, counted in steps, minus step: not 0 once the batch size has changed
	seen       int64 // samples, over the whole run
	lastSave   time.Time
	savedStep  int64
	nanRow     int  // skipped steps in a row
	evalOwed   bool // the evaluation of this step is due, but not done
	asked      wish // what the ranks agreed on after the last step
	alone      [1]RankStep
	result     Result
	record     StepRecord
}

// Run trains to the end, or until ctx is cancelled on any rank. The result is valid, as far as the run got, with an error too. The other
// ranks of a run that fails are told why.
func Run(ctx context.Context, o Options) (Result, error) {
	runtime.LockOSThread() // an OpenMP team and a CUDA context belong to a thread
	defer runtime.UnlockOSThread()
	r := &run{Options: o, start: time.Now(), savedStep: -1}
	r.lastSave = r.start
	r.epochSteps = int64(o.Train.BatchesPerEpoch() / o.Replica.opts.Accumulation)
	resume, err := o.Replica.spread(context.WithoutCancel(ctx), o.Resume)
	if err != nil {
		return r.result, err
	}
	if resume != nil {
		r.restore(*resume)
	}
	if r.end = r.Steps; r.end == 0 && r.Epochs > 0 {
		r.end = max(int64(r.Epochs)*r.epochSteps-r.skew, 1)
	}
	if r.end > 0 {
		r.Schedule.Total = int(r.end + r.skew)
	}
	if err = r.train(ctx); err != nil {
		o.Replica.opts.Peers.Abort(err)
	}
	r.result.Steps, r.result.SamplesSeen = r.step, r.seen
	r.result.Epochs = float64(r.position()) / float64(r.epochSteps)
	return r.result, err
}

// position is where the run stands in its epochs, in steps of the batch size that it has now.
func (r *run) position() int64 { return r.step + r.skew }

// restore takes over counters of a checkpoint. If the batch size has changed since, the run goes on behind the samples
// that the epoch has had; those that do not fill a batch of the present size up to there are left out of this epoch.
func (r *run) restore(s checkpoint.State) {
	r.step = s.Step
	batch := int64(r.Replica.opts.BatchSize)
	position := s.Epoch*r.epochSteps + min((s.EpochSample+batch-1)/batch, r.epochSteps)
	r.skew, r.seen = position-s.Step, s.SamplesSeen
	r.result.Best = s.Best
	r.result.Skipped = s.Counters["skipped_steps"]
	r.result.RollBacks = max(r.result.RollBacks, s.Counters["roll_backs"])
	r.nanRow = int(s.Counters["nan_row"])
	r.savedStep = s.Step
	r.Replica.optim.SetSteps(int(s.Optimizer.Scalars["steps"]))
	if raw, ok := s.Extra["train"]; ok {
		var last lastResults
		if json.Unmarshal(raw, &last) == nil {
			r.result.LastLoss, r.result.LastEval, r.evalOwed = float64(last.Loss), last.Eval, last.EvalOwed
		}
	}
}

// lastResults are what a resumed run shows if it has nothing left to do, and whether it owes an evaluation first.
type lastResults struct {
	Loss     checkpoint.Float `json:"loss"`
	Eval     *Evaluation      `json:"eval"`
	EvalOwed bool             `json:"eval_owed"`
}

func (r *run) train(ctx context.Context) error {
	if err := r.Train.JumpTo(r.position() * int64(r.Replica.opts.Accumulation)); err != nil {
		return err
	}
	if err := r.evaluateIfOwed(ctx); err != nil {
		return err
	}
	for r.end == 0 || r.step < r.end {
		want := r.wishes(ctx)
		if want.stop {
			break
		}
		if want.timeOver {
			r.result.OutOfTime = true
			return r.finalSave()
		}
		if err := r.split(); err != nil {
			return err
		}
		if err := r.oneStep(ctx); err != nil {
			return err
		}
		r.evalOwed = r.evaluationDue()
		if err := r.evaluateIfOwed(ctx); err != nil {
			return err
		}
		if err := r.saveWhenDue(ctx); err != nil {
			r.Observer.Warn(err)
		}
	}
	r.result.Interrupted = r.wishes(ctx).stop && (r.end == 0 || r.step < r.end || r.evalOwed)
	return r.finalSave()
}

// peers is nil for a run of one rank.
func (r *run) peers() *Peers { return r.Replica.opts.Peers }

// leads reports whether this rank saves.
func (r *run) leads() bool { return r.peers() == nil || r.peers().Grads.Rank() == 0 }

// own is what this rank wants by itself. Time is rank 0's affair.
func (r *run) own(ctx context.Context) wish {
	return wish{stop: ctx.Err() != nil, timeOver: r.MaxDuration > 0 && r.leads() && time.Since(r.start) >= r.MaxDuration}
}

// wishes are what ends the run before the next step. Ranks leave after the same step, so they do what they agreed on after the last.
func (r *run) wishes(ctx context.Context) wish {
	if r.peers() != nil {
		return r.asked
	}
	return r.own(ctx)
}

// split takes over the shares that the splitter decides.
func (r *run) split() error {
	if r.Splitter == nil || r.peers() == nil {
		return nil
	}
	shares := r.Splitter.Split(r.step, r.record.Ranks)
	if shares == nil {
		return nil
	}
	if err := r.Replica.SetShares(shares); err != nil {
		return fmt.Errorf("shares %v from step %d on: %w", shares, r.step+1, err)
	}
	reads := r.peers().reads()
	err := r.Train.SetShare(r.position()*int64(r.Replica.opts.Accumulation), reads.Offset, reads.Count)
	if err == nil && r.Eval != nil {
		err = errors.Join(r.Eval.JumpTo(0), r.Eval.SetShare(0, reads.Offset, reads.Count))
	}
	return err
}

// share tells the other ranks of this one's part and learns of theirs.
func (r *run) share(ctx context.Context, own RankStep) ([]RankStep, error) {
	if r.peers() == nil {
		r.alone[0] = own
		return r.alone[:], nil
	}
	all, asked, err := r.Replica.reports.exchange(context.WithoutCancel(ctx), own, r.own(ctx))
	r.asked = asked
	return all, err
}

// total adds up the samples of all ranks, in their order.
func total(ranks []RankStep) (sum Sums) {
	for _, rank := range ranks {
		sum.Add(rank.Sums)
	}
	return sum
}

// oneStep trains one step and deals with gradients that are not finite.
func (r *run) oneStep(ctx context.Context) error {
	rate := r.Schedule.Rate(int(r.position()))
	// The step itself is not cancelled: interrupting a run finishes the step.
	out, err := r.Replica.Step(context.WithoutCancel(ctx), r.Train, rate)
	if err != nil {
		return r.saveUntouched(fmt.Errorf("step %d: %w", r.step+1, err), out)
	}
	own := RankStep{Sums: out.Sums, Times: out.Times, Buckets: out.Buckets, Bytes: out.Bytes, Load: Load{math.NaN(), math.NaN()}}
	if r.Load != nil {
		own.Load = r.Load()
	}
	ranks, err := r.share(ctx, own)
	if err != nil {
		return fmt.Errorf("step %d: %w", r.step+1, err)
	}
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
		r.nanRow++
		r.result.Skipped++
	}
	r.record = StepRecord{StepResult: out, Ranks: ranks, Step: r.step, Total: r.end, Epoch: int(at / r.epochSteps),
		EpochStep: int(at%r.epochSteps) + 1, EpochSteps: int(r.epochSteps), Rate: rate, Skipped: r.result.Skipped, Time: time.Now()}
	r.Observer.StepDone(&r.record)
	if r.nanRow >= r.NaNPatience {
		return r.rollBack()
	}
	return nil
}

// saveUntouched saves before the run ends because its data failed, if the failed step has changed nothing yet: running
// statistics change with the first micro-batch.
func (r *run) saveUntouched(cause error, failed StepResult) error {
	var fault *data.Fault
	if !errors.As(cause, &fault) || failed.Samples > 0 || r.step == 0 || r.peers() != nil {
		return cause // with peers the others may be within the step already: the last checkpoint is what there is
	}
	if err := r.finalSave(); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; the %d steps before are saved", cause, r.step)
}

// rollBack goes on from the newest checkpoint after too many steps without a finite gradient. The steps that follow see
// the same samples again, so a fault that is in the data or the settings comes again and ends the run.
func (r *run) rollBack() error {
	if r.result.RollBacks >= int64(r.NaNRollbacks) {
		return fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, after %d roll-backs; lower optimizer.lr, set train.clip_norm, or use train.precision = \"f32\"",
			ErrDiverged, r.nanRow, r.step, r.result.RollBacks)
	}
	var state *checkpoint.State
	if r.leads() {
		var err error
		if state, err = r.loadNewest(); err != nil {
			return err
		}
	}
	state, err := r.Replica.spread(context.Background(), state)
	if err != nil {
		return err
	}
	seen := r.result.Skipped
	r.restore(*state)
	r.result.Skipped = seen
	r.result.RollBacks++
	r.nanRow = 0
	r.Observer.RolledBack(r.step)
	return r.Train.JumpTo(r.position() * int64(r.Replica.opts.Accumulation))
}

// loadNewest brings the newest sound checkpoint into the replica, and sets those of later steps aside.
func (r *run) loadNewest() (*checkpoint.State, error) {
	c, skipped, err := checkpoint.Latest(r.StoreDir)
	for _, s := range skipped {
		r.Observer.Warn(errors.New(s.String()))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, and there is no checkpoint to go back to: %w", ErrDiverged, r.nanRow, r.step, err)
	}
	defer c.Close()
	if err := r.Replica.Load(c); err != nil {
		return nil, err
	}
	if _, err := r.Store.SetAside(c.State.Step); err != nil {
		return nil, err
	}
	r.Observer.Warn(fmt.Errorf("step %d: the gradient was not finite for %d steps: going back to %s", r.step, r.nanRow, c.Path))
	return &c.State, nil
}

// evaluationDue reports whether this step is the end of an EvalInterval-th epoch or of the run.
func (r *run) evaluationDue() bool {
	epochEnd := r.EvalInterval > 0 && r.position()%(r.epochSteps*int64(r.EvalInterval)) == 0
	return r.Eval != nil && (epochEnd || r.step == r.end)
}

// evaluateIfOwed evaluates where it is due. An evaluation that is interrupted stays owed: the resumed run begins with it.
func (r *run) evaluateIfOwed(ctx context.Context) error {
	if !r.evalOwed {
		return nil
	}
	e, err := r.evaluate(ctx)
	if errors.Is(err, context.Canceled) {
		r.savedStep = -1 // so that the debt is saved, too
		return nil
	}
	if err != nil {
		return fmt.Errorf("evaluation after step %d: %w", r.step, err)
	}
	r.evalOwed = false
	sound := !math.IsNaN(e.Loss) && !math.IsInf(e.Loss, 0) && r.nanRow == 0
	if best := r.result.Best; sound && (best == nil || e.Top1 > float64(best.Value)) {
		e.Best = true
		r.result.Best = &checkpoint.Best{Metric: "top1", Value: checkpoint.Float(e.Top1), Step: r.step}
	}
	r.result.LastEval = &e
	r.Observer.EvalDone(e)
	if e.Best && r.KeepBest {
		if err := r.save(); err != nil {
			r.Observer.Warn(err)
		}
	}
	return nil
}

// evaluate runs all samples that are held out.
func (r *run) evaluate(ctx context.Context) (Evaluation, error) {
	started := time.Now()
	if err := errors.Join(r.Eval.JumpTo(0), r.Replica.PrepareEvaluation()); err != nil {
		return Evaluation{}, err
	}
	var all Sums
	for {
		b, err := r.Eval.Next(r.patient(ctx))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Evaluation{}, err
		}
		s, err := r.Replica.Evaluate(b)
		b.Release()
		if err != nil {
			return Evaluation{}, err
		}
		ranks, err := r.share(ctx, RankStep{Sums: s})
		if err != nil {
			return Evaluation{}, err
		}
		if r.asked.stop {
			return Evaluation{}, context.Canceled
		}
		all.Add(total(ranks))
	}
	n := float64(all.Samples)
	return Evaluation{Step: r.step, Epoch: int((r.position() - 1) / r.epochSteps), Samples: all.Samples, Loss: all.Loss / n,
		Top1: float64(all.Top1) / n, Top5: float64(all.Top5) / n, Took: time.Since(started)}, nil
}

// patient is ctx for a run of one rank. Ranks leave an evaluation together, so none leaves by itself.
func (r *run) patient(ctx context.Context) context.Context {
	if r.peers() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// saveWhenDue saves by steps or by time. A failure in mid-run (a full disk) is tried again at the next interval.
func (r *run) saveWhenDue(ctx context.Context) error {
	bySteps := r.SaveSteps > 0 && r.step%r.SaveSteps == 0
	byTime := r.SaveInterval > 0 && time.Since(r.lastSave) >= r.SaveInterval
	if !(bySteps || byTime) || r.savedStep == r.step || r.step == r.end || r.wishes(ctx).stop {
		return nil // the end and an interruption are saved by finalSave
	}
	if r.nanRow > 0 {
		return nil // not a state to go back to
	}
	return r.save()
}

// finalSave saves unless this very step is saved already.
func (r *run) finalSave() error {
	if r.savedStep == r.step {
		return nil
	}
	if err := r.save(); err != nil {
		return fmt.Errorf("%w: %w", ErrFinalSave, err)
	}
	return nil
}

func (r *run) save() error {
	if !r.leads() {
		r.savedStep = r.step
		return nil
	}
	started := time.Now()
	r.lastSave = started
	r.Observer.Saving()
	state := r.Template
	state.Step, state.Epoch = r.step, r.position()/r.epochSteps
	state.EpochSample, state.SamplesSeen = r.position()%r.epochSteps*int64(r.Replica.opts.BatchSize), r.seen
	state.Best = r.result.Best
	state.Optimizer = checkpoint.OptimizerState{Name: r.Replica.opts.Optimizer.Name,
		Scalars: map[string]checkpoint.Float{"steps": checkpoint.Float(r.Replica.optim.Steps())}}
	state.Counters = map[string]int64{"skipped_steps": r.result.Skipped, "roll_backs": r.result.RollBacks, "nan_row": int64(r.nanRow)}
	last, err := json.Marshal(lastResults{Loss: checkpoint.Float(r.result.LastLoss), Eval: r.result.LastEval, EvalOwed: r.evalOwed})
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	state.Extra = map[string]json.RawMessage{"train": last}
	model, optimizer := r.Replica.Tensors()
	best := r.result.Best != nil && r.result.Best.Step == r.step
	// Background: a save that has begun is finished, also while the run is being interrupted.
	saved, err := r.Store.Save(context.Background(), checkpoint.Snapshot{State: state, Model: model, Optimizer: optimizer, Best: best && r.KeepBest})
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	r.savedStep, r.result.Checkpoint = r.step, saved.Path
	for _, w := range saved.Warnings {
		r.Observer.Warn(w)
	}
	r.Observer.Saved(saved, time.Since(started))
	return nil
}
