package assembly

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// LogOpened logs what happened when the folder of the run was opened: a renamed folder, warnings and skipped
// checkpoints.
func (r *Run) LogOpened() {
	switch changed := r.Folder.Changed; {
	case r.Folder.MovedTo != "" && changed != nil:
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Info(
			"a new run starts; the folder of the old run, which has other settings, was renamed", "in",
			r.Folder.MovedTo, "because", changed.Reason())
	case r.Folder.MovedTo != "":
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Info("a new run starts; the folder of the old run was renamed",
			"in", r.Folder.MovedTo)
	}
	for _, w := range r.Folder.Warnings {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(w)
	}
	for _, s := range r.Folder.Skipped {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(s.String())
	}
}

// Restore loads the checkpoint that the run resumes from. It returns nil if the run starts from the beginning.
func (r *Run) Restore() (*checkpoint.State, error) {
	c := r.Folder.Checkpoint
	if c == nil {
		return nil, nil
	}
	state := c.State
	changed := r.logSettings(c)
	if err := r.checkData(c.Path, &state, changed); err != nil {
		return nil, err
	}
	if err := r.logTypesBefore(&state); err != nil {
		return nil, err
	}
	if r.Process.Cfg.EMA.Decay > 0 && !c.Averaged() {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(
			"the checkpoint has no averaged weights: averaging starts from its trained weights", "checkpoint", c.Path)
	}
	if err := r.Replica.Load(c); err != nil {
		return nil, err
	}
	return &state, nil
}

// CheckResume returns an error if the run cannot continue from its checkpoint. Reasons are an optimizer that cannot use
// the state, and classes or tokens with other meanings. Restore detects changes of the model, because it loads the
// tensors.
func (r *Run) CheckResume() error {
	c := r.Folder.Checkpoint
	if c == nil {
		return nil
	}
	if before, _, err := parts.TrainedOn(c.Path, &c.State); err != nil {
		return err
	} else if _, err := r.compareClasses(&before, c.Path); err != nil {
		return err
	} else if _, err := r.compareTokens(&before, c.Path); err != nil {
		return err
	}
	old, err := config.Parse(c.Path, []byte(c.State.Config), r.Process.Opts.Env.Catalog)
	if err != nil {
		return nil // Restore will warn
	}
	const advice = "--resume none starts a new run and renames the folder of that run"
	was, now := old.Optimizer, r.Process.Cfg.Optimizer
	if was.Name != now.Name {
		return exit.Usagef(
			"optimizer.name: %s was trained with optimizer %q, and optimizer %q cannot use that optimizer's state; %s",
			c.Path, was.Name, now.Name, advice)
	}
	if now.Name == "sgd" && (was.Momentum > 0) != (now.Momentum > 0) {
		return exit.Usagef("optimizer.momentum: %s was trained with momentum %v, and its optimizer state cannot be used with momentum %v; %s",
			c.Path, was.Momentum, now.Momentum, advice)
	}
	if !slices.Equal(old.Model.Freeze, r.Process.Cfg.Model.Freeze) ||
		old.Model.FreezeLayers != r.Process.Cfg.Model.FreezeLayers {
		return exit.Usagef("model.freeze, model.freeze_layers: %s was trained with %q and %d, and its optimizer state cannot be used with %q and %d; start another run with model.init_from = %q, or %s",
			c.Path, old.Model.Freeze, old.Model.FreezeLayers, r.Process.Cfg.Model.Freeze,
			r.Process.Cfg.Model.FreezeLayers, filepath.Join(c.Path, "model.safetensors"), advice)
	}
	return nil
}

// logSettings logs the settings that changed since the checkpoint. The result reports whether the user allowed a change
// of the data.
func (r *Run) logSettings(c *checkpoint.Checkpoint) (dataChanged bool) {
	old, err := config.Parse(c.Path, []byte(c.State.Config), r.Process.Opts.Env.Catalog)
	if err != nil {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn("the settings of the checkpoint cannot be read", "error",
			err)
		return false
	}
	for _, d := range config.Diff(old, r.Process.Cfg) {
		if d.Key == "train.resume" {
			continue
		}
		log := r.Process.Opts.LogOf(logs.ComponentCheckpoint)
		write := log.Info
		if d.Learnt {
			write = log.Warn
		}
		write("setting changed since the checkpoint", "key", d.Key, "was", d.Old, "now", d.New)
	}
	if total := r.totalOf(c.State); r.Falls() && total != "" && total != strconv.FormatInt(r.Steps, 10) {
		r.Process.Opts.Log.Warn(
			"the length of the run changed: the learning rate now follows the schedule of the new length", "was_steps",
			total, "now_steps", r.Steps,
			"learning_rate", r.Schedule().Rate(int(c.State.Step)))
	}
	return slices.ContainsFunc([]string{"data.dataset", dataPathKey, valPathKey}, func(key string) bool {
		return slices.Contains(r.Process.Opts.Allow, key)
	})
}

// MicroBatchesOf returns the number of micro-batches that the program chose for the run of a checkpoint. It returns 0
// if the configuration set this number.
func MicroBatchesOf(state *checkpoint.State) (n int) {
	if json.Unmarshal(state.Extra[microKey], &n) != nil || n < 1 {
		return 0
	}
	return n
}

// totalOf returns the planned number of steps of the run that saved a checkpoint. It returns "" if the learning rate of
// that run did not depend on this number.
func (r *Run) totalOf(state checkpoint.State) string {
	var before derived
	if json.Unmarshal(state.Extra[learntKey], &before) != nil {
		return "" // compare has already reported the error
	}
	return before[totalKey]
}

// checkData compares the classes and the tokenizer of the checkpoint with those of the data. If the run resumes with
// other data, it discards earlier evaluations, because results on different data are not comparable. [experiment.Open]
// has already checked that the data may change.
func (r *Run) checkData(path string, state *checkpoint.State, changed bool) error {
	before, known, err := parts.TrainedOn(path, state)
	if err != nil {
		return err
	}
	if known && before.Name != "" && before.MultiLabel != (r.Data.Sets != nil) {
		texts := map[bool]string{true: "several labels per image", false: "one class per image"}
		return exit.Usagef("%s was trained with %s, but the data set has %s, so the outputs would mean something else: start a new run with model.init_from",
			path, texts[before.MultiLabel], texts[!before.MultiLabel])
	}
	warning, err := r.compareClasses(&before, path)
	if warning != "" {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn(warning, "checkpoint",
			weights.DescribeClasses(before.Classes), "data", weights.DescribeClasses(r.Data.Classes()))
	}
	if err != nil || !known {
		return err
	}
	if warning, err = r.compareTokens(&before, path); err != nil {
		return err
	}
	if warning != "" {
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Warn("resume: " + warning)
	}
	if changed || before.Name != r.Data.Name {
		return train.Forget(state)
	}
	return nil
}

// compareTokens compares the tokenizer of a checkpoint with the tokenizer of the data set.
func (r *Run) compareTokens(before *parts.Trained, path string) (warning string, err error) {
	if r.Data.Tokens == nil {
		return "", nil
	}
	warning, err = before.CheckSplits(r.Data.Tokens, path)
	if err != nil {
		err = fmt.Errorf("resume: %w", err)
	}
	return warning, err
}

// compareClasses compares the class names in a checkpoint with those of the data set. Classes in another order are an
// error, because a resumed classifier keeps the order of its outputs.
func (r *Run) compareClasses(before *parts.Trained, path string) (warning string, err error) {
	was, now := before.Classes, r.Data.Classes()
	if now == nil || slices.Equal(was, now) {
		return "", nil
	}
	if !weights.Named(was) || !weights.Named(now) {
		return "the classes of the checkpoint and of the data set correspond by number only, because names are unknown",
			nil
	}
	shared := min(len(was), len(now))
	at, missing, ok := weights.Locate(now[:shared], was)
	if ok && weights.InOrder(at) {
		return "", nil
	}
	if !ok && before.Name != "" { // the user has allowed other data, for example renamed classes
		return "the checkpoint has no class " + strconv.Quote(missing) +
			": the outputs of its classifier keep their numbers", nil
	}
	return "", exit.Usagef("resume: the classes of the data set (%s) differ from those of the checkpoint (%s), so its classifier would give them other meanings; start a run with model.init_from = %q, which matches classes by name",
		weights.DescribeClasses(now), weights.DescribeClasses(was), path)
}

// logTypesBefore warns if the element types of the ranks differ from the types in the checkpoint, for example on
// another machine.
func (r *Run) logTypesBefore(state *checkpoint.State) error {
	before, err := compute.TypesOf(state)
	if err != nil || before == nil {
		return err
	}
	if was, now := compute.TypeSet(before), compute.TypeSet(r.Rank.Types); !slices.Equal(was, now) &&
		r.Process.Cfg.Train.Precision == "auto" {
		r.Process.Opts.LogOf(logs.ComponentDevice).Warn(
			fmt.Sprintf(
				"the checkpoint was trained in %s, and the run continues in %s; to keep one type, set train.precision",
				strings.Join(was, " and "), strings.Join(now, " and ")))
	}
	return nil
}
