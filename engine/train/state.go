package train

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

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

// snapshot returns the current state of the run for a checkpoint with these tensors.
func (r *run) snapshot(model, optimizer []checkpoint.Tensor) (checkpoint.Snapshot, error) {
	r.saves.begin()
	at, o, state := &r.at, r.Replica.Options(), r.Template
	state.Step, state.Epoch = at.step, at.position()/at.epochSteps
	state.EpochSample, state.SamplesSeen = at.position()%at.epochSteps*int64(o.BatchSize), at.seen
	state.Best = r.evals.best
	state.Optimizer = checkpoint.OptimizerState{Name: o.Optimizer.Name,
		Scalars: map[string]checkpoint.Float{"steps": checkpoint.Float(r.Replica.Optimizer().Steps())}}
	if s := r.Replica.LossScale(); s != nil {
		state.LossScale = &checkpoint.LossScale{Scale: checkpoint.Float(s.Scale), GoodSteps: s.GoodSteps}
	}
	state.Counters = map[string]int64{"skipped_steps": at.skipped, "roll_backs": at.rollBacks,
		"nan_row": int64(at.nanRow), "replaced": at.replaced, "epoch_replaced": int64(at.epochReplaced)}
	last, err := json.Marshal(lastResults{Loss: checkpoint.Float(at.lastLoss), Eval: r.evals.last,
		EvalOwed: r.evals.owed, Stopping: r.evals.stopping, Trained: at.trained})
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("checkpoint of step %d: %w", at.step, err)
	}
	state.Extra = maps.Clone(r.Template.Extra)
	if state.Extra == nil {
		state.Extra = map[string]json.RawMessage{}
	}
	state.Extra[loopKey] = last
	if err := state.SetCompared(r.compares.lineage); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("checkpoint of step %d: %w", at.step, err)
	}
	best := r.KeepBest && r.evals.best != nil && r.evals.best.Step == at.step
	return checkpoint.Snapshot{State: state, Model: model, Optimizer: optimizer, Best: best}, nil
}

// restore restores the counters of a checkpoint. If the batch size has changed, the run continues at the next batch of
// the new size after the samples already used in this epoch. The samples in between are skipped in this epoch.
func (r *run) restore(s checkpoint.State) error {
	at := &r.at
	at.step = s.Step
	batch := int64(r.Replica.Options().BatchSize)
	position := s.Epoch*at.epochSteps + min((s.EpochSample+batch-1)/batch, at.epochSteps)
	at.skew, at.seen = position-s.Step, s.SamplesSeen
	r.evals.best = s.Best
	at.skipped = s.Counters["skipped_steps"]
	at.rollBacks = max(at.rollBacks, s.Counters["roll_backs"])
	at.nanRow = int(s.Counters["nan_row"])
	at.epochReplaced, at.replaced = int(s.Counters["epoch_replaced"]), s.Counters["replaced"]
	r.saves.step = s.Step
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
		at.lastLoss, at.trained = float64(last.Loss), last.Trained
		r.evals.last, r.evals.owed, r.evals.stopping = last.Eval, last.EvalOwed, last.Stopping
	}
	r.compares.inherit(s)
	at.settleEnd(r.Steps, r.Epochs)
	if r.evals.missing() { // if settings have changed, an epoch or the run may end exactly at this step
		r.evals.owed = true
	}
	return nil
}

// corruptState reports a state whose checksums are correct, but from which no run can continue.
func corruptState(step int64, err error) error {
	return &checkpoint.CorruptError{Path: fmt.Sprintf("the checkpoint of step %d", step), Reason: err.Error()}
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
