package train

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Run trains to the end, or until ctx is cancelled on any rank. If Run returns an error, the result is valid up to
// the last step. A rank that fails sends its error to the other ranks.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	runtime.LockOSThread() // OpenMP teams and CUDA contexts belong to an OS thread
	defer runtime.UnlockOSThread()
	r := newRun(o, func() bool { return ctx.Err() != nil })
	uncancelled := context.WithoutCancel(ctx)
	resume, err := r.meet(uncancelled)
	defer func() { err = errors.Join(err, r.ranks.close()) }()
	if err != nil {
		r.group().Abort(err)
		r.group().Drain()
		return r.outcome(), err
	}
	if err = r.begin(uncancelled, resume); err == nil {
		err = r.train(ctx)
	}
	r.saves.leaving()
	r.saves.settle()
	if err != nil && !errors.Is(err, errUnreadable) { // all ranks have the error errUnreadable, and have left together
		r.group().Abort(err)
		r.group().Drain()
		err = r.survive(err)
	}
	return r.outcome(), err
}

func (r *run) train(ctx context.Context) error {
	uncancelled := context.WithoutCancel(ctx) // not cancelled, so that an interrupted run finishes its step
	if err := r.shares.jump(); err != nil {
		return err
	}
	if err := r.tooManyReplaced(); err != nil {
		return err
	}
	if err := r.evaluateIfOwed(ctx); err != nil {
		return err
	}
	for r.at.end == 0 || r.at.step < r.at.end {
		r.saves.poll()
		want := r.ranks.wishes()
		if want.stop {
			break
		}
		if r.evals.stopping.over(r.EarlyStop) {
			r.result.GaveUp = r.evals.stopping.reason(r.EarlyStop)
			return r.finish(uncancelled)
		}
		if want.timeOver {
			r.result.OutOfTime = true
			return r.finish(uncancelled)
		}
		if err := r.prepareStep(); err != nil {
			return err
		}
		wentBack, err := r.oneStep(ctx, uncancelled)
		if err != nil {
			return err
		}
		if !wentBack { // after a roll-back, the checkpoint contains owed
			r.evals.owed = r.evals.due()
		}
		if err := r.evaluateIfOwed(ctx); err != nil {
			return err
		}
		if err := r.saveWhenDue(ctx); err != nil {
			return err
		}
		if r.ranks.wishes().full {
			if err := r.awaitDisk(ctx, "the records of steps", r.recordsFit); err != nil {
				return err
			}
		}
	}
	r.result.Interrupted = r.ranks.wishes().stop && (r.at.end == 0 || r.at.step < r.at.end || r.evals.owed)
	return r.finish(uncancelled)
}

// prepareStep makes the changes that are permitted between two steps: those of the shares, and those of
// Options.BeforeStep.
func (r *run) prepareStep() error {
	if err := r.shares.split(); err != nil {
		return err
	}
	if r.BeforeStep != nil {
		resume := r.clock.pause()
		r.BeforeStep(r.at.step + 1)
		resume()
	}
	return r.shares.follow()
}

// oneStep trains one step. After too many consecutive steps without finite gradients, it rolls back to an earlier
// step.
func (r *run) oneStep(ctx, uncancelled context.Context) (wentBack bool, err error) {
	rate := r.at.rate()
	out, err := r.timedStep(uncancelled)
	if r.group() != nil {
		r.tellTimes() // the times of the previous step, even if this step failed after it got the reports
	}
	if err != nil {
		return false, r.saveUntouched(fmt.Errorf("step %d: %w", r.at.step+1, err), out)
	}
	r.note(out, rate)
	if r.ranks.asked.compare {
		if err := r.compares.compare(uncancelled, false); err != nil {
			return false, err
		}
	}
	r.at.countReplaced(r.ranks.reported, r.record.EpochStep == 1)
	r.record.EpochReplaced = r.at.epochReplaced
	r.Observer.StepDone(&r.record)
	if r.group() == nil {
		r.tellTimes()
	}
	if err := r.shares.notes(); err != nil {
		r.Observer.Warn(err)
	}
	if err := r.tooManyReplaced(); err != nil {
		return false, r.leaveWith(uncancelled, err)
	}
	if r.at.nanRow >= r.NaNPatience {
		return true, r.rollBack(ctx, uncancelled)
	}
	return false, nil
}

// timedStep trains one step, and measures its training time.
func (r *run) timedStep(uncancelled context.Context) (out replica.StepResult, err error) {
	begun, since := r.clock.begin()
	r.ranks.begin(since)
	norms := r.NormsInterval > 0 && (r.at.step+1)%r.NormsInterval == 0
	out, err = r.Replica.Step(uncancelled, r.Train,
		replica.StepOptions{Rate: r.at.rate(), Norms: norms, Exchange: &r.ranks})
	if r.group() == nil {
		r.ranks.reportAlone(&out)
	}
	r.clock.end(begun, since)
	return out, err
}

// note counts a step and sets its record. The parameter rate is its learning rate.
func (r *run) note(out replica.StepResult, rate float64) {
	at := r.at.position() // position of this step, from 0
	ranks := r.ranks.end(&out)
	out.Sums = total(ranks)
	r.at.done(&out, r.clock.took)
	r.result.Samples += int64(out.Samples)
	r.result.TrainTime += r.clock.took
	epoch := r.at.epochSteps
	r.record = StepRecord{StepResult: out, Took: r.clock.took, Trained: r.at.trained, Ranks: ranks,
		Shares: r.Replica.Shares().All(), Changed: r.shares.changed, Step: r.at.step, Total: r.at.end,
		Epoch: int(at / epoch), EpochStep: int(at%epoch) + 1, EpochSteps: int(epoch),
		Rate: rate, Skipped: r.at.skipped, Time: time.Now()}
	r.shares.changed = false
}

// tooManyReplaced returns an error if an epoch has more unreadable samples than MaxReplaced.
func (r *run) tooManyReplaced() error {
	if r.MaxReplaced == 0 || r.at.epochReplaced <= r.MaxReplaced {
		return nil
	}
	epoch := (r.at.position() - 1) / r.at.epochSteps
	return unreadable(r.at.epochReplaced, r.MaxReplaced, fmt.Sprintf("epoch %d up to step %d", epoch, r.at.step))
}
