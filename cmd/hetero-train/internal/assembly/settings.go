package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Report returns the format in which the results of the task are shown.
func (r *Run) Report() task.Report {
	if r.Foreign != nil {
		return r.Foreign.Report
	}
	report := images.Classify{Classes: len(r.Data.Classes()), Independent: r.Data.Sets != nil}.Report()
	if t := r.Data.Tokens; t != nil {
		report = t.Report()
	}
	return report.Showing(r.Process.Cfg.Checkpoint.BestMetric).Showing(r.Process.Cfg.Train.EarlyStopMetric)
}

// Task returns the learning task: the configured model with the targets and metrics of the data set.
func (r *Run) Task() (task.Task, error) {
	c := r.Process.Cfg
	classes, err := r.classes()
	if err != nil {
		return nil, err
	}
	if t := r.Data.Tokens; t != nil {
		return t.Task(&c.Model, parts.TextTask{Vocabulary: t.Vocabulary, Positions: t.Length, Classes: classes,
			LabelSmoothing: c.Train.LabelSmoothing})
	}
	model, err := parts.BuildClassifier(&c.Model)
	norm := parts.Normalization(c.Data, r.Data.Normalization)
	return images.Classify{Model: model, Classes: classes, Independent: r.Data.Sets != nil,
		Size: c.Data.ImageSize, Mean: norm.Mean, Std: norm.Std,
		LabelSmoothing: c.Train.LabelSmoothing, Mixed: parts.Mixing(c.Augment).Enabled()}, err
}

// ReplicaOptions returns the network and the training options that the configuration and the data set determine.
func (r *Run) ReplicaOptions() (replica.Options, error) {
	c := r.Process.Cfg
	learns, err := r.Task()
	if err != nil {
		return replica.Options{}, err
	}
	if err := r.weightsFit(); err != nil {
		return replica.Options{}, err
	}
	group := 0
	if c.Model.BatchNorm == "ghost" {
		group = c.Model.GhostGroup
	}
	o := replica.Options{
		Task:    learns,
		Compute: r.Rank.Precision, LossScale: r.Rank.ScalesLoss(), GhostGroup: group, BatchSize: c.Data.BatchSize,
		Accumulation: c.Train.MicroBatches(),
		Recompute:    recomputes[c.Train.Recompute],
		Freeze:       nn.Freeze{Patterns: c.Model.Freeze, Layers: c.Model.FreezeLayers},
		Seed:         c.Experiment.Seed, Optimizer: OptimizerOptions(c), Peers: Peers(c, r.Rank.Team.Joined()),
		Norms:        c.Train.NormsInterval > 0 && r.Rank.Team.Leads(), // norms are equal on all ranks
		ClassWeights: r.weights, Average: optim.AverageOptions{Decay: c.EMA.Decay, Warmup: c.EMA.Warmup,
			Interval: c.EMA.Interval},
	}
	if r.Loading.KeepLast && !r.Unopened {
		o.LastBatch = r.Loading.Samples.Len() % o.BatchSize
	}
	if t := r.Data.Tokens; t != nil && t.Shorter != nil {
		o.Positions, o.Shorter = t.Length, t.Shorter
	}
	return o, nil
}

// Peers returns the options for training with the ranks of a group. The caller must add the first shares. Peers returns
// nil for a nil group.
func Peers(c *config.Config, group *gradsync.Group) *replica.Peers {
	if group == nil {
		return nil
	}
	p := &replica.Peers{Group: group, SyncNorm: c.Model.BatchNorm == "sync",
		CapBytes: int64(c.Parallel.BucketCapMB * (1 << 20)), Sequential: !c.Parallel.Overlap}
	if c.Parallel.WireDType == "bf16" {
		p.Wire = tensor.BF16
	}
	return p
}

// recomputes maps the values of train.recompute to options of package train.
var recomputes = map[string]replica.Recompute{"auto": replica.RecomputeShort, "off": replica.RecomputeNever,
	"all": replica.RecomputeAlways}

// OptimizerOptions returns the options of the configured optimizer.
func OptimizerOptions(c *config.Config) optim.Options {
	o := optim.Options{Name: c.Optimizer.Name, Momentum: c.Optimizer.Momentum, Nesterov: c.Optimizer.Nesterov,
		WeightDecay: c.Optimizer.WeightDecay, Beta1: c.Optimizer.Betas[0], Beta2: c.Optimizer.Betas[1],
		Eps: c.Optimizer.Eps, ClipNorm: c.Train.ClipNorm, LayerDecay: c.Optimizer.LayerDecay}
	if !c.Optimizer.DecayNormsAndBias { // as in the library timm
		o.Decays = func(name string, shape tensor.Shape) bool {
			return len(shape) > 1 && !strings.HasSuffix(name, ".bias")
		}
	}
	return o
}

// Schedule returns the learning rate schedule, with epochs converted to steps.
func (r *Run) Schedule() optim.Schedule {
	s := r.Process.Cfg.Schedule
	out := optim.Schedule{Name: s.Name, Base: r.Process.Cfg.Optimizer.LR, Min: s.MinLR, Warmup: s.WarmupSteps,
		Total:    int(r.Steps),
		StepSize: s.StepSize * int(r.StepsPer), Gamma: s.Gamma}
	if s.WarmupEpochs > 0 {
		out.Warmup = int(s.WarmupEpochs*float64(r.StepsPer) + 0.5)
	}
	for _, m := range s.Milestones {
		out.Milestones = append(out.Milestones, m*int(r.StepsPer))
	}
	return out
}

// CurveSetting describes the settings on which the time of a step depends, except the device and the data. The
// parameter element is the element type in which the rank trains. Measured step times are valid only for the setting
// with which they were measured.
func CurveSetting(c *config.Config, element string) string {
	var model []string
	size := fmt.Sprintf("images of %d pixels", c.Data.ImageSize)
	for _, s := range c.Settings() {
		if strings.HasPrefix(s.Key, "model.") && !strings.HasPrefix(s.Key, "model.init_") {
			model = append(model, strings.TrimPrefix(s.Key, "model.")+"="+s.Value)
		}
		if s.Key == "data.sequence_length" {
			size = "texts of " + s.Value + " tokens"
		}
	}
	return fmt.Sprintf("%s; %s, %s, %d micro-batches, %s", strings.Join(model, " "), element, size,
		c.Train.MicroBatches(), c.Optimizer.Name)
}

// Settings returns the settings that have an effect on the run.
func (r *Run) Settings() []config.Setting {
	all := r.Process.Cfg.Settings()
	if r.Foreign == nil {
		return all
	}
	return slices.DeleteFunc(all, func(s config.Setting) bool { return !Applies(s.Key) })
}

// SettingsTOML returns the settings that have an effect on the run, as a TOML file.
func (r *Run) SettingsTOML(cfg *config.Config) string {
	if r.Foreign == nil {
		return string(cfg.TOML())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The steps of this run were computed by %s. The file lists the settings that had an effect.\n",
		r.Foreign.Script.Program)
	last := ""
	for _, s := range cfg.Settings() {
		if !Applies(s.Key) {
			continue
		}
		table, key, _ := strings.Cut(s.Key, ".")
		if table != last {
			fmt.Fprintf(&b, "\n[%s]\n", table)
			last = table
		}
		fmt.Fprintf(&b, "%s = %s\n", key, s.Value)
	}
	return b.String()
}
