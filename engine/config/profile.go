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
