package assembly

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// OpenData opens the data set and the training loader. The loader determines the number of steps of an epoch.
func (j *Run) OpenData(ctx context.Context) (err error) {
	if j.Data, err = parts.OpenData(ctx, j.Cfg, 0, j.Opts.LogOf(logs.ComponentData)); err != nil {
		return err
	}
	j.Later(j.Data.Close)
	j.Epochs = j.Cfg.Train.Epochs
	if most := j.Cfg.Data.FallbackEpochs; j.Data.Note != "" && most > 0 && j.Cfg.Train.Steps == 0 {
		j.Epochs = min(j.Epochs, most)
	}
	if j.Data.Note != "" {
		j.Opts.LogOf(logs.ComponentData).Warn(j.Data.Note, "epochs", j.Epochs, "configured_epochs", j.Cfg.Train.Epochs)
	}
	j.warnOfUnused()
	if classes := j.Data.Classes(); len(classes) == 1 {
		j.Opts.LogOf(logs.ComponentData).Warn("the data set has only one class, so there is nothing to learn", "class", classes[0])
	}
	j.Loading = data.Options{Samples: j.trainSamples(), Seed: j.Cfg.Experiment.Seed,
		BatchSize: j.Cfg.Data.BatchSize, Accumulation: j.Cfg.Train.GradAccumulation, Workers: j.Cfg.Data.Workers}
	batches, err := j.Loading.BatchesPerEpoch()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	j.StepsPer = int64(batches / j.Cfg.Train.GradAccumulation)
	j.Steps = int64(j.Cfg.Train.Steps)
	if j.Steps == 0 {
		j.Steps = int64(j.Epochs) * j.StepsPer
	}
	if name := j.Cfg.Schedule.Name; j.Steps == 0 && (name == "cosine" || name == "linear") {
		return exit.Usagef("schedule.name: %q needs the length of the run, but only train.max_seconds limits this run: set train.epochs or train.steps, or use another schedule", name)
	}
	return exit.With(exit.Usage, j.Schedule().Check())
}

// CheckModel checks that the network accepts images of the configured size. Nothing is written before this check.
func (j *Run) CheckModel(context.Context) error {
	o, err := j.ReplicaOptions()
	if err != nil {
		return err
	}
	err = o.Check()
	var frozen *nn.FreezeError
	switch {
	case errors.As(err, &frozen) && frozen.Unmatched != "":
		return exit.Usagef("model.freeze: %w, %s; nearest: %s", frozen.Err, j.Cfg.Model.Name, strings.Join(config.Nearest(frozen.Unmatched, frozen.Names, 3), ", "))
	case errors.As(err, &frozen):
		return exit.Usagef("model.freeze and model.freeze_layers: %w", frozen.Err)
	}
	if err != nil && j.Data.Tokens != nil {
		return fmt.Errorf("model %s on %d tokens: %w", j.Cfg.Model.Name, j.Data.Tokens.Length, err)
	}
	if err != nil {
		return fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", j.Cfg.Model.Name, j.Cfg.Data.ImageSize, err)
	}
	return nil
}

// trainSamples returns the samples of training, with augmentation.
func (j *Run) trainSamples() data.Samples {
	if t := j.Data.Tokens; t != nil {
		return t.Train
	}
	view, _ := parts.Transforms(j.Cfg.Data)
	view.Augment = parts.Augmentation(j.Cfg.Augment, parts.Normalization(j.Cfg.Data, j.Data.Normalization))
	return data.Images{Dataset: j.Data.Train, Transform: view, Mix: parts.Mixing(j.Cfg.Augment)}
}

// Evaluating returns the options of the loader of all samples of evaluation.
func (j *Run) Evaluating() data.Options {
	o := data.Options{Seed: j.Cfg.Experiment.Seed, BatchSize: j.Cfg.Data.BatchSize / j.Cfg.Train.GradAccumulation, Evaluate: true, Workers: j.Cfg.Data.Workers}
	if t := j.Data.Tokens; t != nil {
		o.Samples = t.Eval
		return o
	}
	_, view := parts.Transforms(j.Cfg.Data)
	o.Samples = data.Images{Dataset: j.Data.Eval, Transform: view}
	return o
}

// NewLoader opens the loader for this rank's share.
func (j *Run) NewLoader(o data.Options) (*data.Loader, error) {
	if p := j.Team.Joined(); p != nil {
		share, most := p.Reads()
		o.Share, o.MaxCount = &share, most
		if o.Workers == 0 {
			o.Workers = j.OwnCPUs()
		}
	}
	l, err := data.NewLoader(o)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	j.Later(l.Close)
	return l, nil
}
