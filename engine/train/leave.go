package train

import (
	"context"
	"errors"
	"fmt"
)

// finish saves the state at the end of the run. It returns an ErrDiverged if the evaluation of this state is not
// finite.
func (r *run) finish(ctx context.Context) error {
	if r.evals.diverged() && !r.result.Interrupted {
		return r.leaveWith(ctx, fmt.Errorf("%w: the loss of the evaluation after step %d is %v; "+
			"lower optimizer.lr, set train.clip_norm, or use train.precision = \"f32\"", ErrDiverged, r.at.step, r.evals.last.Loss))
	}
	return r.leave(ctx)
}

// leave saves the state, after the ranks have checked that all of them have the same state.
func (r *run) leave(ctx context.Context) error {
	if err := r.completeTimes(ctx); err != nil {
		return err
	}
	if err := r.compares.compare(ctx, false); err != nil {
		return err
	}
	if err := r.compares.compareData(ctx, true); err != nil {
		return err
	}
	r.saves.leaving()
	return r.finalSave()
}

// leaveWith ends the run with an error that all ranks have. No rank exits before rank 0 has saved, because the loss
// of a rank would also end rank 0.
func (r *run) leaveWith(ctx context.Context, cause error) error {
	err := errors.Join(cause, r.leave(ctx))
	return errors.Join(err, r.group().Barrier(ctx, "leave"))
}
