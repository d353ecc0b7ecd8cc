package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// saveDue reports whether rank 0 saves a checkpoint of the given step, by steps or by time.
func (r *run) saveDue(step int64) bool {
	return r.leads() && (r.SaveSteps > 0 && step%r.SaveSteps == 0 || r.SaveInterval > 0 &&
		time.Since(r.lastSave) >= r.SaveInterval)
}

// saveWhenDue saves a checkpoint if one is due, or on request. All ranks compare their replicas before. If the save
// fails, for example because the disk is full, the run saves again at the next interval. The error is that of the
// comparison.
func (r *run) saveWhenDue(ctx context.Context) error {
	want := r.wishes()
	if !(want.due || want.save) || r.step == r.end || want.stop {
		return nil // finalSave saves the last step and the state after an interruption
	}
	if r.nanRow > 0 {
		return nil // a roll-back to this state would not help, because its gradients were not finite
	}
	if stop, err := r.awaitSave(ctx); err != nil || stop {
		return err
	}
	// The ranks differ in savedStep after a save of rank 0 has failed, so the comparison must not depend on it.
	if err := r.compare(context.WithoutCancel(ctx), r.savedStep != r.step); err != nil || r.savedStep == r.step {
		return err
	}
	r.answered = r.requests()
	if want.save && r.SaveAgreed != nil {
		r.SaveAgreed()
	}
	defer r.pause()()
	if err := r.saveBeside(); err != nil {
		r.Observer.Warn(triedAgain(err))
	}
	return nil
}

// requests returns the number of save requests on this rank.
func (r *run) requests() int64 {
	if r.SaveRequests == nil {
		return 0
	}
	return r.SaveRequests()
}

// finalSave saves the state, unless a checkpoint of this step exists.
func (r *run) finalSave() error {
	r.settleSave()
	if r.savedStep == r.step {
		return nil
	}
	if err := r.save(); err != nil {
		return fmt.Errorf("%w: %w", ErrFinalSave, err)
	}
	return nil
}

// written is the result of a save.
type written struct {
	step  int64
	began time.Time
	saved checkpoint.Saved
	err   error
}

// save writes a checkpoint of this step. It returns after the checkpoint is on disk.
func (r *run) save() error {
	r.settleSave()
	if !r.leads() {
		r.savedStep = r.step
		return nil
	}
	w := written{step: r.step, began: time.Now()}
	model, optimizer := r.Replica.Tensors()
	if c := r.compared; c.step == r.step {
		model, optimizer = c.model, c.optimizer
	}
	snapshot, err := r.snapshot(model, optimizer)
	if err != nil {
		return err
	}
	defer r.blocks("the checkpoint of this step")()
	if r.Disk != nil {
		<-r.Disk.Written()
	}
	// context.Background: a save that has started is finished even if the run is interrupted.
	w.saved, w.err = r.Store.Save(context.Background(), snapshot)
	return r.note(w)
}

// saveBeside copies the state to memory and writes the copy in the background. If there is not enough memory for a
// copy, saveBeside writes the checkpoint before it returns. Only one save runs at a time, so a disk that is slower
// than the save interval delays training; see saveWhenDue.
func (r *run) saveBeside() error {
	if !r.copies() {
		return r.save()
	}
	r.settleSave()
	w := written{step: r.step, began: time.Now()}
	model, optimizer, err := r.tensorsBeside()
	if err != nil {
		return err
	}
	snapshot, err := r.snapshot(model, optimizer)
	if err != nil {
		return err
	}
	r.savedStep, r.saving = r.step, make(chan written, 1)
	var records <-chan struct{} // the records of the steps before the checkpoint
	if r.Disk != nil {
		records = r.Disk.Written()
	}
	go func() {
		if records != nil {
			<-records
		}
		w.saved, w.err = r.Store.Save(context.Background(), snapshot)
		r.saving <- w
	}()
	return nil
}

// tensorsBeside returns copies of the tensors in host memory. If the ranks were compared after this step, the copies
// have the checksums of the comparison.
func (r *run) tensorsBeside() (model, optimizer []checkpoint.Tensor, err error) {
	c := r.compared
	if c.step == r.step && c.copied {
		return c.model, c.optimizer, nil
	}
	model, optimizer, err = r.Replica.Copies()
	if c.step != r.step || err != nil {
		return model, optimizer, err
	}
	for i := range model {
		model[i].Sum = c.model[i].Sum
	}
	for i := range optimizer {
		optimizer[i].Sum = c.optimizer[i].Sum
	}
	return model, optimizer, nil
}

// settleSave waits for the save in progress, if there is one.
func (r *run) settleSave() {
	if r.saving != nil {
		r.saveEnded(<-r.saving)
	}
}

// settled reports whether no save is in progress.
func (r *run) settled() bool { return r.saving == nil || len(r.saving) > 0 }

// pollSave records the result of a save that has ended. It does not block.
func (r *run) pollSave() {
	select {
	case w := <-r.saving:
		r.saveEnded(w)
	default: // no save has ended
	}
}

func (r *run) saveEnded(w written) {
	r.saving = nil
	if err := r.note(w); err != nil {
		if r.savedStep == w.step {
			r.savedStep = -1
		}
		r.Observer.Warn(triedAgain(err))
	}
}

// triedAgain adds to err that the run saves again at the next interval.
func triedAgain(err error) error {
	if errors.Is(err, checkpoint.ErrFolderGone) {
		return fmt.Errorf("%w; this process can save no other checkpoint: stop it, and start the command again", err)
	}
	return fmt.Errorf("%w; earlier checkpoints are unchanged, and the run saves again at the next interval", err)
}

// note records the result of a save and reports it to the observer.
func (r *run) note(w written) error {
	if w.err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", w.step, w.err)
	}
	r.savedStep, r.result.Checkpoint = w.step, w.saved.Path
	for _, warning := range w.saved.Warnings {
		r.Observer.Warn(warning)
	}
	r.Observer.Saved(w.saved, time.Since(w.began))
	return nil
}

// snapshot returns the current state of the run for a checkpoint.
func (r *run) snapshot(model, optimizer []checkpoint.Tensor) (checkpoint.Snapshot, error) {
	r.lastSave = time.Now()
	r.Observer.Saving()
	state := r.Template
	state.Step, state.Epoch = r.step, r.position()/r.epochSteps
	state.EpochSample, state.SamplesSeen = r.position()%r.epochSteps*int64(r.Replica.Options().BatchSize), r.seen
	state.Best = r.result.Best
	state.Optimizer = checkpoint.OptimizerState{Name: r.Replica.Options().Optimizer.Name,
		Scalars: map[string]checkpoint.Float{"steps": checkpoint.Float(r.Replica.Optimizer().Steps())}}
	if s := r.Replica.LossScale(); s != nil {
		state.LossScale = &checkpoint.LossScale{Scale: checkpoint.Float(s.Scale), GoodSteps: s.GoodSteps}
	}
	state.Counters = map[string]int64{"skipped_steps": r.result.Skipped, "roll_backs": r.result.RollBacks,
		"nan_row":  int64(r.nanRow),
		"replaced": r.result.Replaced, "epoch_replaced": int64(r.replaced)}
	last, err := json.Marshal(lastResults{Loss: checkpoint.Float(r.result.LastLoss), Eval: r.result.LastEval,
		EvalOwed: r.evalOwed, Stopping: r.stopping, Trained: r.trained})
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	state.Extra = maps.Clone(r.Template.Extra)
	if state.Extra == nil {
		state.Extra = map[string]json.RawMessage{}
	}
	state.Extra[loopKey] = last
	if err := state.SetCompared(r.lineage); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	best := r.KeepBest && r.result.Best != nil && r.result.Best.Step == r.step
	return checkpoint.Snapshot{State: state, Model: model, Optimizer: optimizer, Best: best}, nil
}

// saveUntouched saves before a data error ends the run, if the failed step has not changed any state yet. The first
// micro-batch of a step already changes the running statistics.
func (r *run) saveUntouched(cause error, failed replica.StepResult) error {
	var fault *data.Fault
	if !errors.As(cause, &fault) || failed.Samples > 0 || r.step == 0 || r.group() != nil {
		return cause // other ranks may already be in the step, so the last checkpoint must suffice
	}
	if err := r.finalSave(); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; the %d steps before it are saved", cause, r.step)
}
