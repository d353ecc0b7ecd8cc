package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// earlierCheckpoint names the data for which training waits if a checkpoint is due before the earlier one is written.
const earlierCheckpoint = "the checkpoint before this one"

// save writes a checkpoint of this step. It returns after the checkpoint is on disk.
func (r *run) save() error {
	r.saves.settle()
	if !r.ranks.leads() {
		r.saves.step = r.at.step
		return nil
	}
	began := time.Now()
	snapshot, err := r.snapshot(r.compares.tensors())
	if err != nil {
		return err
	}
	return r.saves.write(snapshot, began)
}

// saveBeside copies the state to memory and writes the copy in the background. If there is not enough memory for a
// copy, saveBeside writes the checkpoint before it returns. Only one save runs at a time, so a disk that is slower
// than the save interval delays training; see saveWhenDue.
func (r *run) saveBeside() error {
	if !r.compares.copies() {
		return r.save()
	}
	r.saves.settle()
	began := time.Now()
	model, optimizer, err := r.compares.copied()
	if err != nil {
		return err
	}
	snapshot, err := r.snapshot(model, optimizer)
	if err != nil {
		return err
	}
	r.saves.writeBeside(snapshot, began)
	return nil
}

// finalSave saves the state, unless a checkpoint of this step exists.
func (r *run) finalSave() error {
	r.saves.settle()
	if r.saves.step == r.at.step {
		return nil
	}
	if err := r.save(); err != nil {
		return fmt.Errorf("%w: %w", ErrFinalSave, err)
	}
	return nil
}

// saveUntouched saves before a data error ends the run, if the failed step has not changed any state yet. The first
// micro-batch of a step already changes the running statistics.
func (r *run) saveUntouched(cause error, failed replica.StepResult) error {
	var fault *data.Fault
	if !errors.As(cause, &fault) || failed.Samples > 0 || r.at.step == 0 || r.group() != nil {
		return cause // other ranks may already be in the step, so the last checkpoint must suffice
	}
	if err := r.finalSave(); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; the %d steps before it are saved", cause, r.at.step)
}

// saveWhenDue saves a checkpoint if one is due, or on request. All ranks compare their replicas first. If the save
// fails, for example because the disk is full, the run saves again at the next interval. saveWhenDue returns errors of
// the comparison and of exchanges between ranks.
func (r *run) saveWhenDue(ctx context.Context) error {
	want := r.ranks.wishes()
	if !(want.due || want.save) || r.at.step == r.at.end || want.stop {
		return nil // finalSave saves the last step and the state after an interruption
	}
	if r.at.nanRow > 0 {
		return nil // a roll-back to this state would not help, because its gradients were not finite
	}
	if err := r.completeTimes(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if stop, err := r.awaitSave(ctx); err != nil || stop {
		return err
	}
	// The ranks differ in saves.step after a save of rank 0 has failed, so the comparison must not depend on it.
	saved := r.saves.step == r.at.step
	if err := r.compares.compare(context.WithoutCancel(ctx), !saved); err != nil || r.saves.step == r.at.step {
		return err
	}
	r.answered = r.requests()
	if want.save && r.SaveAgreed != nil {
		r.SaveAgreed()
	}
	defer r.clock.pause()()
	if err := r.saveBeside(); err != nil {
		r.Observer.Warn(triedAgain(err))
	}
	return nil
}

// awaitSave waits until the save in progress has ended, so that the next one can begin. All ranks must call it. It
// reports whether a rank stops the run.
func (r *run) awaitSave(ctx context.Context) (stop bool, err error) {
	if r.ranks.wishes().saving {
		err = r.awaitDisk(ctx, earlierCheckpoint, r.saves.settled)
	}
	return r.ranks.wishes().stop, err
}

// awaitDisk waits until ready returns true on rank 0, or until a rank stops the run; see consensus.await. The wait
// is reported under the name what, and does not count as training time.
func (r *run) awaitDisk(ctx context.Context, what string, ready func() bool) error {
	defer r.clock.pause()()
	return r.ranks.await(ctx, ready, func() func() { return r.saves.disk.Waits(what) })
}
