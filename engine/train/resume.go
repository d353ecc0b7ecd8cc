package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// meet compares the ranks, and sends the state from which rank 0 resumes to all ranks.
func (r *run) meet(ctx context.Context) (*checkpoint.State, error) {
	if err := r.ranks.open(r.Replica.Device()); err != nil {
		return nil, err
	}
	if err := r.Replica.Agree(ctx); err != nil {
		return nil, err
	}
	return r.Replica.Spread(ctx, r.Options.Resume)
}

// begin starts at step 0, or at the step of the given checkpoint state. The ranks compare the states that they received
// from rank 0.
func (r *run) begin(ctx context.Context, state *checkpoint.State) error {
	if state == nil {
		r.at.settleEnd(r.Steps, r.Epochs)
		return r.compares.compare(ctx, false)
	}
	if err := r.restore(*state); err != nil {
		return err
	}
	r.at.first = r.at.step
	if err := r.compares.compare(ctx, false); err != nil || !r.Foreign {
		return err
	}
	r.at.trained = Trained{} // of the other run
	r.saves.step = -1
	if err := r.saveBeside(); err != nil {
		return fmt.Errorf("%w: %w", ErrFinalSave, err)
	}
	return nil
}

// rollBack continues from the newest checkpoint after too many steps without a finite gradient. The repeated steps use
// the same samples. If the cause is in the data or the settings, the gradients become NaN or infinite again. After
// NaNRollbacks roll-backs, the run ends. If ctx ends while training waits for the disk, the run stops where it is:
// skipped steps have not changed the weights. The context uncancelled is never cancelled.
func (r *run) rollBack(ctx, uncancelled context.Context) error {
	if err := r.completeTimes(uncancelled); err != nil {
		return err
	}
	if r.at.rollBacks >= int64(r.NaNRollbacks) {
		// All ranks have this error. Without the barrier, the first rank that leaves would end the exchange above on
		// the others.
		_ = r.group().Barrier(uncancelled, "leave")
		return fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, after %d returns to an earlier checkpoint; "+
			"lower optimizer.lr, set train.clip_norm, or use train.precision = \"f32\"", ErrDiverged, r.at.nanRow, r.at.step, r.at.rollBacks)
	}
	defer r.clock.pause()()
	if err := r.awaitDisk(ctx, earlierCheckpoint, r.saves.settled); err != nil || r.ranks.wishes().stop {
		return err
	}
	r.saves.settle()
	r.unsound = true // until state and weights belong to the same step again
	var state *checkpoint.State
	if r.ranks.leads() {
		var err error
		if state, err = r.loadNewest(); err != nil {
			return err
		}
	}
	state, err := r.Replica.Spread(uncancelled, state)
	if err != nil {
		return err
	}
	skipped := r.at.skipped
	if err := r.restore(*state); err != nil {
		return err
	}
	r.unsound = false
	r.at.skipped = skipped
	r.at.rollBacks++
	r.at.nanRow = 0
	r.compares.forget()
	if err := r.compares.compare(uncancelled, false); err != nil {
		return err
	}
	if err := r.removeRecords(ctx); err != nil {
		return err
	}
	return r.shares.jump()
}

// removeRecords makes the observer remove the records of the steps that will be repeated.
func (r *run) removeRecords(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Observer.RolledBack(r.at.step)
	}()
	err := r.awaitDisk(ctx, "the removal of the records of repeated steps", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	if err == nil {
		<-done // awaitDisk asks only rank 0; the other ranks wait here
	}
	return err
}

// loadNewest loads the newest valid checkpoint into the replica, and moves the checkpoints of later steps to another
// name.
func (r *run) loadNewest() (*checkpoint.State, error) {
	defer r.saves.disk.Waits("the newest checkpoint")()
	c, skipped, err := r.Store.Latest()
	for _, s := range skipped {
		r.Observer.Warn(errors.New(s.String()))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, and the run has no checkpoint to return to: %w",
			ErrDiverged, r.at.nanRow, r.at.step, err)
	}
	defer c.Close()
	if err := r.Replica.Load(c); err != nil {
		return nil, err
	}
	if _, err := r.Store.SetAside(c.State.Step); err != nil {
		return nil, err
	}
	r.Observer.Warn(fmt.Errorf("step %d: the gradient was not finite for %d steps: returning to %s",
		r.at.step, r.at.nanRow, c.Path))
	return &c.State, nil
}
