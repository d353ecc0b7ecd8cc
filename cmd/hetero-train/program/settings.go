package program

import (
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train"
)

// replicaOptions is the network and its training as the configuration and the data set want them.
func (j *Run) replicaOptions() (train.ReplicaOptions, error) {
	c := j.cfg
	classes := c.Model.NumClasses
	if have := len(j.data.Train.Classes()); classes == 0 {
		classes = have
	} else if classes < have {
		return train.ReplicaOptions{}, exit.Usagef("model.num_classes: the data set %s has %d classes (got %d, want at least %d)", j.data.Name, have, classes, have)
	}
	norm := parts.Normalization(c.Data, j.data.Normalization)
	group := 0
	if c.Model.BatchNorm == "ghost" {
		group = c.Model.GhostGroup
	}
	return train.ReplicaOptions{
		Model: parts.BuildModel(&c.Model), Classes: classes, ImageSize: c.Data.ImageSize, Mean: norm.Mean, Std: norm.Std,
		Compute: j.precision, LossScale: j.scalesLoss(), GhostGroup: group, BatchSize: c.Data.BatchSize, Accumulation: c.Train.GradAccumulation,
		LabelSmoothing: c.Train.LabelSmoothing, Mixed: parts.Mixing(c.Augment).Enabled(), Freeze: nn.Freeze{Patterns: c.Model.Freeze, Layers: c.Model.FreezeLayers},
		Seed: c.Experiment.Seed, Optimizer: optimizerOptions(c), Peers: j.team.joined(),
		Norms:   c.Train.NormsInterval > 0 && j.team.leads(), // the same on all ranks
		Average: optim.AverageOptions{Decay: c.EMA.Decay, Warmup: c.EMA.Warmup, Interval: c.EMA.Interval},
	}, nil
}

func optimizerOptions(c *config.Config) optim.Options {
	o := optim.Options{Name: c.Optimizer.Name, Momentum: c.Optimizer.Momentum, Nesterov: c.Optimizer.Nesterov,
		WeightDecay: c.Optimizer.WeightDecay, Beta1: c.Optimizer.Betas[0], Beta2: c.Optimizer.Betas[1], Eps: c.Optimizer.Eps, ClipNorm: c.Train.ClipNorm, LayerDecay: c.Optimizer.LayerDecay}
	if !c.Optimizer.DecayNormsAndBias { // the parameters that timm leaves out, too
		o.Decays = func(name string, shape tensor.Shape) bool { return len(shape) > 1 && !strings.HasSuffix(name, ".bias") }
	}
	return o
}

// schedule turns the configured epochs into steps.
func (j *Run) schedule() optim.Schedule {
	s := j.cfg.Schedule
	out := optim.Schedule{Name: s.Name, Base: j.cfg.Optimizer.LR, Min: s.MinLR, Warmup: s.WarmupSteps, Total: int(j.steps),
		StepSize: s.StepSize * int(j.stepsPer), Gamma: s.Gamma}
	if s.WarmupEpochs > 0 {
		out.Warmup = int(s.WarmupEpochs*float64(j.stepsPer) + 0.5)
	}
	for _, m := range s.Milestones {
		out.Milestones = append(out.Milestones, m*int(j.stepsPer))
	}
	return out
}
