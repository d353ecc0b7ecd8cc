package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// meet compares the ranks, and sends the state at which rank 0 resumes to all of them.
func (r *run) meet(ctx context.Context) (*checkpoint.State, error) {
	if r.group() != nil {
		var err error
		if r.reports, err = newReports(r.Replica.Device(), r.group()); err != nil {
			return nil, err
		}
	}
	if err := r.Replica.Agree(ctx); err != nil {
		return nil, err
	}
	return r.Replica.Spread(ctx, r.Options.Resume)
}

// begin starts at step 0, or at the step of the given checkpoint state. The ranks compare what they received from
// rank 0.
func (r *run) begin(ctx context.Context, state *checkpoint.State) error {
	if state == nil {
		r.settleEnd()
		return r.compare(ctx, false)
	}
	if err := r.restore(*state); err != nil {
		return err
	}
	r.first = r.step
	if err := r.compare(ctx, false); err != nil || !r.Foreign {
		return err
	}
	r.trained = Trained{} // of the other run
	r.savedStep = -1
	if err := r.saveBeside(); err != nil {
		return fmt.Errorf("%w: %w", ErrFinalSave, err)
	}
	return nil
}

// restore restores the counters of a checkpoint. If the batch size has changed, the run continues at the next batch
// of the new size that starts after the samples already used in this epoch. The samples in between are skipped in
// this epoch.
func (r *run) restore(s checkpoint.State) error {
	r.step = s.Step
	batch := int64(r.Replica.Options().BatchSize)
	position := s.Epoch*r.epochSteps + min((s.EpochSample+batch-1)/batch, r.epochSteps)
	r.skew, r.seen = position-s.Step, s.SamplesSeen
	r.result.Best = s.Best
	r.result.Skipped = s.Counters["skipped_steps"]
	r.result.RollBacks = max(r.result.RollBacks, s.Counters["roll_backs"])
	r.nanRow = int(s.Counters["nan_row"])
	r.replaced, r.result.Replaced = int(s.Counters["epoch_replaced"]), s.Counters["replaced"]
	r.savedStep = s.Step
	r.Replica.Optimizer().SetSteps(int(s.Optimizer.Scalars["steps"]))
	if to, from := r.Replica.LossScale(), s.LossScale; to != nil && from != nil {
		if err := to.Set(float64(from.Scale), from.GoodSteps); err != nil {
			return corruptState(s.Step, err)
		}
	}
	if raw, ok := s.Extra[loopKey]; ok {
		var last lastResults
		if err := json.Unmarshal(raw, &last); err != nil {
			return corruptState(s.Step, fmt.Errorf("state of the loop: %w", err))
		}
		r.result.LastLoss, r.result.LastEval, r.evalOwed, r.stopping = float64(last.Loss), last.Eval, last.EvalOwed,
			last.Stopping
		r.trained = last.Trained
	}
	r.inherit(s)
	r.settleEnd()
	// If settings have changed, an epoch or the run may end exactly at this step.
	if e := r.result.LastEval; r.evaluationDue() && (e == nil || e.Step != r.step) {
		r.evalOwed = true
	}
	return nil
}

// corruptState reports a state whose checksums are correct, but from which no run can continue.
func corruptState(step int64, err error) error {
	return &checkpoint.CorruptError{Path: fmt.Sprintf("the checkpoint of step %d", step), Reason: err.Error()}
}

// settleEnd computes the step at which the run ends, which is the length of the schedule.
func (r *run) settleEnd() {
	if r.end = r.Steps; r.end == 0 && r.Epochs > 0 {
		r.end = max(int64(r.Epochs)*r.epochSteps-r.skew, 1)
	}
	if r.end > 0 {
		r.schedule.Total = int(r.end + r.skew)
	}
}

// loopKey is the key of lastResults in a checkpoint.
const loopKey = "train"

// lastResults contains the results that a resumed run reports if no steps are left, whether an evaluation is due, and
// the training time so far.
type lastResults struct {
	Loss     checkpoint.Float `json:"loss"`
	Eval     *Evaluation      `json:"eval"`
	EvalOwed bool             `json:"eval_owed"`
	Stopping stopping         `json:"early_stop"`
	Trained  Trained          `json:"trained"`
}

// Forget removes the results of evaluations from a checkpoint's state. The caller continues the run with other data.
func Forget(state *checkpoint.State) error {
	state.Best = nil
	raw, ok := state.Extra[loopKey]
	if !ok {
		return nil
	}
	var last lastResults
	if err := json.Unmarshal(raw, &last); err != nil {
		return corruptState(state.Step, fmt.Errorf("state of the loop: %w", err))
	}
	last.Eval, last.Stopping = nil, stopping{}
	text, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("state of the loop: %w", err)
	}
	state.Extra = maps.Clone(state.Extra) // keeps the map of the checkpoint unchanged
	state.Extra[loopKey] = text
	return nil
}

// rollBack continues from the newest checkpoint after too many steps without a finite gradient. The repeated steps
// use the same samples. If the cause is in the data or the settings, it occurs again and ends the run. If ctx ends
// while training waits for the disk, the run stops where it is: skipped steps have not changed the weights. whole does
// not end.
func (r *run) rollBack(ctx, whole context.Context) error {
	if r.result.RollBacks >= int64(r.NaNRollbacks) {
		return fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, after %d returns to an earlier checkpoint; lower optimizer.lr, set train.clip_norm, or use train.precision = \"f32\"",
			ErrDiverged, r.nanRow, r.step, r.result.RollBacks)
	}
	defer r.pause()()
	if err := r.awaitDisk(ctx, earlierCheckpoint, r.settled); err != nil || r.wishes().stop {
		return err
	}
	r.settleSave()
	r.unsound = true // until state and weights belong to the same step again
	var state *checkpoint.State
	if r.leads() {
		var err error
		if state, err = r.loadNewest(); err != nil {
			return err
		}
	}
	state, err := r.Replica.Spread(whole, state)
	if err != nil {
		return err
	}
	seen := r.result.Skipped
	if err := r.restore(*state); err != nil {
		return err
	}
	r.unsound = false
	r.result.Skipped = seen
	r.result.RollBacks++
	r.nanRow = 0
	r.compared.step = -1 // the weights are others
	if err := r.compare(whole, false); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Observer.RolledBack(r.step)
	}()
	if err := r.awaitDisk(ctx, "the removal of the records of repeated steps", closed(done)); err != nil {
		return err
	}
	<-done // on ranks other than rank 0, which awaitDisk does not ask
	return r.jump()
}

// loadNewest loads the newest valid checkpoint into the replica, and moves the checkpoints of later steps to another
// name.
func (r *run) loadNewest() (*checkpoint.State, error) {
	defer r.blocks("the newest checkpoint")()
	c, skipped, err := r.Store.Latest()
	for _, s := range skipped {
		r.Observer.Warn(errors.New(s.String()))
	}
	if err != nil {
		return nil,
			fmt.Errorf("%w: the gradient was not finite for %d steps up to step %d, and the run has no checkpoint to return to: %w",
				ErrDiverged, r.nanRow, r.step, err)
	}
	defer c.Close()
	if err := r.Replica.Load(c); err != nil {
		return nil, err
	}
	if _, err := r.Store.SetAside(c.State.Step); err != nil {
		return nil, err
	}
	r.Observer.Warn(fmt.Errorf("step %d: the gradient was not finite for %d steps: returning to %s", r.step, r.nanRow,
		c.Path))
	return &c.State, nil
}
