package assembly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// OpenData opens the data set, prepares the options of the training loader and computes the number of steps. The
// options determine the number of steps per epoch.
func (r *Run) OpenData(ctx context.Context) (err error) {
	if r.Data, err = parts.OpenData(ctx, r.Process.Cfg, 0, r.Process.Opts.LogOf(logs.ComponentData)); err != nil {
		return err
	}
	r.Process.Later(func() error {
		if r.reading.Load() {
			return nil
		}
		return r.Data.Close()
	})
	r.Epochs = r.Process.Cfg.Train.Epochs
	if most := r.Process.Cfg.Data.FallbackEpochs; r.Data.Note != "" && most > 0 && r.Process.Cfg.Train.Steps == 0 {
		r.Epochs = min(r.Epochs, most)
	}
	if r.Data.Note != "" {
		r.Process.Opts.LogOf(logs.ComponentData).Warn(r.Data.Note, "epochs", r.Epochs, "configured_epochs",
			r.Process.Cfg.Train.Epochs)
	}
	if err := r.checkMetrics(); err != nil {
		return err
	}
	if err := r.weighClasses(); err != nil {
		return err
	}
	r.warnOfUnused()
	if classes := r.Data.Classes(); len(classes) == 1 {
		r.Process.Opts.LogOf(logs.ComponentData).Warn("the data set has only one class, so there is nothing to learn",
			"class", classes[0])
	}
	r.PrepareLoading()
	batches, err := r.Loading.BatchesPerEpoch()
	if err != nil {
		return loaderError(err)
	}
	r.StepsPer = int64(batches / r.Process.Cfg.Train.MicroBatches())
	r.Steps = int64(r.Process.Cfg.Train.Steps)
	if r.Steps == 0 {
		r.Steps = int64(r.Epochs) * r.StepsPer
	}
	if name := r.Process.Cfg.Schedule.Name; r.Steps == 0 && (name == "cosine" || name == "linear") {
		return exit.Usagef("schedule.name: %q needs the length of the run, but only train.max_seconds limits this run: set train.epochs or train.steps, or use another schedule",
			name)
	}
	r.warnOfLength()
	return exit.With(exit.Usage, r.Schedule().Check())
}

// PrepareLoading sets the options of the training loader from the settings and the data set.
func (r *Run) PrepareLoading() {
	r.Loading = data.Options{Samples: r.trainSamples(), Seed: r.Process.Cfg.Experiment.Seed,
		BatchSize: r.Process.Cfg.Data.BatchSize, Accumulation: r.Process.Cfg.Train.MicroBatches(),
		KeepLast:      !r.Process.Cfg.Data.DropLast,
		Workers:       r.Process.Cfg.Data.Workers,
		GroupByLength: r.Data.Tokens != nil && r.Data.Tokens.Shorter != nil}
}

// checkMetrics returns an error if the metric for early stopping or for the best checkpoint is not a metric of the
// task.
func (r *Run) checkMetrics() error {
	t, best, have := r.Process.Cfg.Train, r.Process.Cfg.Checkpoint.BestMetric, []string{}
	for _, m := range r.Report().Choices() {
		have = append(have, m.Key)
	}
	if best != "auto" && !slices.Contains(have, best) {
		return exit.Usagef("checkpoint.best_metric: evaluations on %s have no %s (got %q, want auto, %s)", r.Data.Name,
			best, best, strings.Join(have, ", "))
	}
	if t.EarlyStopPatience > 0 && !slices.Contains(have, t.EarlyStopMetric) {
		return exit.Usagef("train.early_stop_metric: evaluations on %s have no %s (got %q, want %s)", r.Data.Name,
			t.EarlyStopMetric, t.EarlyStopMetric, strings.Join(have, ", "))
	}
	return nil
}

// CheckModel checks the options of the replica, for example that the network accepts images of the configured size. It
// runs before the program creates a file.
func (r *Run) CheckModel(context.Context) error {
	o, err := r.ReplicaOptions()
	if err != nil {
		return err
	}
	err = o.Check()
	var frozen *nn.FreezeError
	switch {
	case errors.As(err, &frozen) && frozen.Unmatched != "":
		return exit.Usagef("model.freeze: %w, %s; nearest: %s", frozen.Err, r.Process.Cfg.Model.Name,
			strings.Join(config.Nearest(frozen.Unmatched, frozen.Names, 3), ", "))
	case errors.As(err, &frozen):
		return exit.Usagef("model.freeze and model.freeze_layers: %w", frozen.Err)
	}
	if err != nil && r.Data.Tokens != nil {
		return fmt.Errorf("model %s on %d tokens: %w", r.Process.Cfg.Model.Name, r.Data.Tokens.Length, err)
	}
	if err != nil {
		return fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", r.Process.Cfg.Model.Name,
			r.Process.Cfg.Data.ImageSize, err)
	}
	return r.checkLast(o)
}

// checkLast checks an epoch's last step if it has fewer samples than the others. It returns an error if the ranks could
// not average BatchNorm's running statistics exactly. It warns if BatchNorm would compute statistics from a single
// sample.
func (r *Run) checkLast(o replica.Options) error {
	part := o.LastBatch % o.MicroBatch()
	if part == 0 {
		return nil
	}
	name, err := o.BatchStatistics()
	if name == "" || err != nil {
		return err
	}
	several := r.Process.Opts.Assignment.WorldSize > 1 && r.Process.Cfg.Model.BatchNorm != "sync"
	if several && o.LastBatch > o.MicroBatch() {
		return exit.Usagef("data.drop_last: the last step of an epoch has %d samples, so micro-batches of %d and of %d, but with model.batch_norm = %q the ranks average their running statistics once per step: set data.drop_last = true, train.grad_accumulation = 1 or model.batch_norm = \"sync\"",
			o.LastBatch, o.MicroBatch(), part, r.Process.Cfg.Model.BatchNorm)
	}
	if part == 1 && r.Rank.Team.Leads() {
		r.Process.Opts.LogOf(logs.ComponentData).Warn(fmt.Sprintf("the last step of each epoch has a micro-batch of 1 sample, from which BatchNorm computes its statistics (such as %s): set data.drop_last = true, or another data.batch_size",
			name), "last_batch", o.LastBatch)
	}
	return nil
}

// trainSamples returns the training samples with augmentation.
func (r *Run) trainSamples() data.Samples {
	if t := r.Data.Tokens; t != nil {
		return t.Train
	}
	view, _ := parts.Transforms(r.Process.Cfg.Data)
	view.Augment = parts.Augmentation(r.Process.Cfg.Augment,
		parts.Normalization(r.Process.Cfg.Data, r.Data.Normalization))
	return data.Images{Dataset: r.Data.Train, Sets: r.labelSets(), Transform: view,
		Mix: parts.Mixing(r.Process.Cfg.Augment)}
}

// Evaluating returns the loader options for one pass over all evaluation samples.
func (r *Run) Evaluating() data.Options {
	o := data.Options{Seed: r.Process.Cfg.Experiment.Seed, BatchSize: r.Process.Cfg.Data.BatchSize /
		r.Process.Cfg.Train.MicroBatches(), Evaluate: true, Workers: r.Process.Cfg.Data.Workers}
	if t := r.Data.Tokens; t != nil {
		o.Samples = t.Eval
		return o
	}
	_, view := parts.Transforms(r.Process.Cfg.Data)
	o.Samples = data.Images{Dataset: r.Data.Eval, Sets: r.labelSets(), Transform: view}
	return o
}

// labelSets returns the labels of a data set with several labels per image, extended to all outputs of the model. It
// returns nil if each image has one class.
func (r *Run) labelSets() *data.LabelSets {
	sets := r.Data.Sets
	if sets == nil || r.Process.Cfg.Model.NumClasses <= len(sets.Names) {
		return sets
	}
	all := *sets
	all.Names = append(slices.Clone(sets.Names), make([]string, r.Process.Cfg.Model.NumClasses-len(sets.Names))...)
	return &all
}

// NewLoader opens a loader for the share of this rank.
func (r *Run) NewLoader(o data.Options) (*data.Loader, error) {
	if r.Rank.Team.Joined() != nil {
		r.ReadShare(&o, r.Replica.Shares())
	}
	l, err := data.NewLoader(o)
	if err != nil {
		return nil, loaderError(err)
	}
	r.Process.Later(l.Close)
	return l, nil
}

// ReadShare sets the options of a loader so that it reads only this rank's share of each batch.
func (r *Run) ReadShare(o *data.Options, owner *shares.Owner) {
	part := owner.Part()
	o.Share, o.MaxCount = &part, max(owner.Most(), part.Count, 1)
	if o.Workers == 0 {
		o.Workers = r.Process.OwnCPUs()
	}
}

// loaderError attaches an exit code to the error of a loader: Data for a fault in a file, otherwise Usage.
func loaderError(err error) error {
	if errors.As(err, new(*data.Fault)) {
		return exit.With(exit.Data, err)
	}
	return exit.With(exit.Usage, err)
}
