package config

// Profile contains the keys of table [profile].
type Profile struct {
	Enabled             bool
	Interval            int // steps between two metric records
	TensorBoardInterval int // steps; 0: no event files
	Histograms          int // steps between two histograms of parameters; 0: none
	TraceStep           int // first step to trace; 0: no trace
	TraceSteps          int
	GPUProfiles         string
	AtStart             string // "auto", "measure" or "off"
}

// Keys implements [Options].
func (p *Profile) Keys() []Key {
	return each(Key.Operational, []Key{
		Bool(&p.Enabled, "enabled", true).
			Doc("Writes the metrics of each rank to `logs/rank_<r>_metrics.json`."),
		Int(&p.Interval, "interval", 1).Unit("steps").Silent("it has no records of steps").AtLeast(1).Only(
			Is("profile.enabled", true)).
			Doc("Steps between two records."),
		Int(&p.TensorBoardInterval, "tensorboard_interval", 10).Unit("steps").Silent(
			"logs/tensorboard has points of its first and last step only").
			Doc("Steps between two points in `logs/tensorboard`; `tensorboard --logdir` shows them during the run (docs/reports.md). 0: no event files."),
		Int(&p.Histograms, "histograms",
			0).Unit("steps").Silent("it writes no histograms").Only(IsNot("profile.tensorboard_interval", 0)).
			Doc("Steps between two histograms of the weights and of the gradient of each parameter in `logs/tensorboard`, with the bins of PyTorch's `add_histogram`. Rank 0 reads all parameters and gradients in these steps (docs/reports.md). 0: none."),
		Int(&p.TraceStep, "trace_step", 0).Silent("it writes no timeline").
			Doc("First step of the timeline `logs/trace.json` for ui.perfetto.dev: every launch, copy, wait and all-reduce of all ranks (docs/reports.md). 0: no timeline."),
		Int(&p.TraceSteps, "trace_steps", 5).Unit("steps").AtLeast(1).AtMost(1000).Only(IsNot("profile.trace_step", 0)).
			Doc("Number of steps of the timeline."),
		String(&p.GPUProfiles, "gpu_profiles", "").Path().
			Doc("A `gpu_profiles.json` file that `hetero-train profile` wrote. Balancing starts with its scores, or, with `balance.policy = \"hybrid\"`, with its step times of this model. Empty: see `at_start`."),
		Choice(&p.AtStart, "at_start", "auto", "auto", "measure", "off").OverriddenBy("profile.gpu_profiles").
			Doc("Source of the compute scores without `gpu_profiles`. `auto`: the scores in the user's cache folder. If there are none, the ranks measure at the start, for at most about 2 s. A run of one rank only writes its score to `configs/gpu_profiles.json`. `measure`: always a measurement. `off`: no scores. Rank 0 decides for all ranks."),
	})
}

// Checkpoint contains the keys of table [checkpoint].
type Checkpoint struct {
	IntervalSteps   int     // steps; 0: no checkpoints by steps
	IntervalSeconds float64 // seconds; 0: no checkpoints by time
	Keep            int
	Best            bool
	BestMetric      string // "auto", or the key of a metric
	Upload          string // folder of S3; "": no uploads
}

// Keys implements [Options].
func (c *Checkpoint) Keys() []Key {
	return each(Key.Operational, []Key{
		Int(&c.IntervalSteps, "interval_steps", 0).Unit("steps").SilentAtEnd(
			"it saves no checkpoint by steps before its end").
			Doc("Steps between two checkpoints. 0: no checkpoints by steps."),
		Float(&c.IntervalSeconds, "interval_seconds", 300).Unit("s").SilentAtEnd(
			"it saves no checkpoint by time before its end").
			Doc("Time between two checkpoints. 0: no checkpoints by time. If both intervals are 0, the run saves only at its end."),
		Int(&c.Keep, "keep", 3).AtLeast(1).AtMost(1 << 20).
			Doc("Number of newest checkpoints to keep."),
		Bool(&c.Best, "best", true).
			Doc("Also keeps the checkpoint with the best evaluation."),
		Choice(&c.BestMetric, "best_metric", "auto", "auto", "top1", "top5", "loss", "perplexity", "f1", "macro_f1").
			Doc("Metric of the best evaluation. `auto`: `top1` (accuracy) for classes, `perplexity` for tokens. `loss` is always possible. Images: also `top5`. Text: also `top1` (accuracy). Images and labelled texts: also `f1` (of the second class if there are two, else the mean over all classes) or `macro_f1` (mean over all classes). Images with several labels: `f1` is micro F1, and is the metric of `auto`; `top1` is the accuracy over all labels."),
		String(&c.Upload, "upload", "").Objects().
			Doc("Folder of S3, such as `s3://BUCKET/runs`. Each saved checkpoint is also stored there, in `NAME/checkpoints`, in the background; NAME is `experiment.name`. `resume = \"auto\"` downloads the newest checkpoint if it is newer than those on this machine (docs/object-storage.md). Empty: no uploads."),
	})
}
