package program

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
)

// sayOpened tells what opening the run's folder has brought to light.
func (j *job) sayOpened() {
	if j.run.MovedTo != "" {
		j.opts.logOf(componentCheckpoint).Info("the old run was moved aside", "to", j.run.MovedTo)
	}
	for _, w := range j.run.Warnings {
		j.opts.logOf(componentCheckpoint).Warn(w)
	}
	for _, s := range j.run.Skipped {
		j.opts.logOf(componentCheckpoint).Warn(s.String())
	}
}

// restore loads the checkpoint to go on from; nil state for a fresh start.
func (j *job) restore() (*checkpoint.State, error) {
	c := j.run.Checkpoint
	if c == nil {
		return nil, nil
	}
	state := c.State
	changed, err := j.checkSettings(c)
	if err != nil {
		return nil, err
	}
	if err := j.checkData(&state, changed); err != nil {
		return nil, err
	}
	if err := j.sayTypesBefore(&state); err != nil {
		return nil, err
	}
	if j.cfg.EMA.Decay > 0 && !c.Averaged() {
		j.opts.logOf(componentCheckpoint).Warn("the checkpoint holds no averages of the weights: they begin with its weights", "checkpoint", c.Path)
	}
	if err := j.replica.Load(c); err != nil {
		return nil, err
	}
	return &state, nil
}

// checkSettings shows what has changed since the checkpoint, and refuses what its state cannot follow. The model is compared
// tensor by tensor when it is loaded. dataChanged says that the user has changed what is trained on.
func (j *job) checkSettings(c *checkpoint.Checkpoint) (dataChanged bool, err error) {
	old, err := config.Parse(c.Path, []byte(c.State.Config), j.opts.env.catalog)
	if err != nil {
		j.opts.logOf(componentCheckpoint).Warn("the settings that the checkpoint was made with cannot be read", "error", err)
		return false, nil
	}
	const advice = "--resume none starts anew and keeps that run aside"
	before, now := old.Optimizer, j.cfg.Optimizer
	if before.Name != now.Name {
		return false, usageError("optimizer.name: %s was trained with %q, whose state %q cannot take over; %s", c.Path, before.Name, now.Name, advice)
	}
	if now.Name == "sgd" && (before.Momentum > 0) != (now.Momentum > 0) {
		return false, usageError("optimizer.momentum: %s was trained with %v, with which it has other state than with %v; %s", c.Path, before.Momentum, now.Momentum, advice)
	}
	if !slices.Equal(old.Model.Freeze, j.cfg.Model.Freeze) || old.Model.FreezeLayers != j.cfg.Model.FreezeLayers {
		return false, usageError("model.freeze, model.freeze_layers: %s was trained with %q and %d, and has optimizer state for what was trained alone, not for %q and %d; start another run with model.init_from = %q, or %s",
			c.Path, old.Model.Freeze, old.Model.FreezeLayers, j.cfg.Model.Freeze, j.cfg.Model.FreezeLayers, filepath.Join(c.Path, "model.safetensors"), advice)
	}
	for _, d := range config.Diff(old, j.cfg) {
		if d.Key == "train.resume" {
			continue
		}
		j.opts.logOf(componentCheckpoint).Warn("setting changed since the checkpoint", "key", d.Key, "was", d.Old, "now", d.New)
	}
	return old.Data.Dataset != j.cfg.Data.Dataset || old.Data.Path != j.cfg.Data.Path, nil
}

// dataKey is where a checkpoint says what was trained on.
const dataKey = "data"

// trained is what a run was trained on, which a fallback makes another thing than the settings say.
type trained struct {
	Name    string `json:"name"`
	Note    string `json:"note"`
	Samples int    `json:"samples"`

	// What a prediction needs of the data set; checkpoints of earlier versions lack it.
	Classes []string   `json:"classes,omitempty"`
	Mean    [3]float32 `json:"mean,omitzero"` // of the pixels, as they are normalised
	Std     [3]float32 `json:"std,omitzero"`
}

func (j *job) trainedOn() map[string]json.RawMessage {
	norm := normalization(j.cfg.Data, j.data.Normalization)
	text, err := json.Marshal(trained{Name: j.data.name, Note: j.data.note, Samples: j.data.Train.Len(), Classes: j.data.Train.Classes(), Mean: norm.Mean, Std: norm.Std})
	if err != nil {
		panic(err) // texts and finite numbers
	}
	types, err := json.Marshal(j.types)
	if err != nil {
		panic(err) // texts
	}
	return map[string]json.RawMessage{dataKey: text, typesKey: types}
}

// checkData refuses to go on with other data than before unless the user has changed it; then evaluations so far mean nothing.
func (j *job) checkData(state *checkpoint.State, changed bool) error {
	var before trained
	raw, ok := state.Extra[dataKey]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, &before); err != nil {
		return fmt.Errorf("checkpoint of step %d: what it was trained on: %w", state.Step, err)
	}
	if changed {
		return train.Forget(state)
	}
	if before.Name != j.data.name {
		return withCode(exitData, fmt.Errorf("the run was trained on %s so far, now it would go on with %s: set data.dataset = %q to go on as before, or --resume none to start anew and keep that run aside",
			before.Name, j.data.name, before.Name))
	}
	return nil
}
