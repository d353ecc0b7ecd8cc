package train

import (
	"context"
	"errors"
	"fmt"
)

// evaluateIfOwed evaluates if an evaluation is due, and saves the best result. If the evaluation is interrupted, it
// remains due, and the resumed run starts with it.
func (r *run) evaluateIfOwed(ctx context.Context) error {
	if !r.evals.owed {
		return nil
	}
	defer r.clock.pause()()
	uncancelled := context.WithoutCancel(ctx)
	if err := r.completeTimes(uncancelled); err != nil {
		return err
	}
	e, err := r.evals.evaluate(ctx)
	if errors.Is(err, context.Canceled) {
		r.saves.step = -1 // forces a save, which records that the evaluation is still due
		return nil
	}
	if errors.Is(err, errUnreadable) {
		r.saves.step = -1
		err = r.leaveWith(uncancelled, err)
	}
	if err != nil {
		return fmt.Errorf("evaluation after step %d: %w", r.at.step, err)
	}
	e = r.evals.note(e)
	r.Observer.EvalDone(e)
	if !e.Best || !r.KeepBest {
		return nil
	}
	if stop, err := r.awaitSave(ctx); err != nil || stop { // after a stop, finalSave saves the best checkpoint
		return err
	}
	if err := r.compares.compare(uncancelled, true); err != nil {
		return err
	}
	if err := r.saveBeside(); err != nil {
		r.Observer.Warn(err)
	}
	return nil
}
