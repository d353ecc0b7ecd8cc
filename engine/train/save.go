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
)

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
	state.Extra = maps.Clone(r.Template.Extra)
	if state.Extra == nil {
		state.Extra = map[string]json.RawMessage{}
	}
	state.Extra["train"] = last
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
