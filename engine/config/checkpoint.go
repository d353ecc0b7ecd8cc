package config

// Profile is the [profile] table.
type Profile struct {
	Enabled             bool
	Interval            int // steps
	TensorBoardInterval int // steps; 0 = no event files
	TraceStep           int // the first that is traced; 0 = none
	TraceSteps          int
	GPUProfiles         string
	AtStart             string // auto, measure, off
}

// Keys lists the table's keys.
func (p *Profile) Keys() []Key {
	return each(Key.Operational, []Key{
		Bool(&p.Enabled, "enabled", true).
			Doc("Whether each rank writes its metrics to `logs/rank_<r>_metrics.json`."),
		Int(&p.Interval, "interval", 1).Unit("steps").AtLeast(1).
			Doc("Steps between two records."),
		Int(&p.TensorBoardInterval, "tensorboard_interval", 10).Unit("steps").
			Doc("Steps between two points in `logs/tensorboard`, which `tensorboard --logdir` shows live (docs/reports.md). 0: none are written."),
		Int(&p.TraceStep, "trace_step", 0).
			Doc("From this step on `logs/trace.json` gets a timeline of every launch, copy, wait and sum over ranks, of all ranks, which ui.perfetto.dev opens (docs/reports.md). 0: none."),
		Int(&p.TraceSteps, "trace_steps", 5).Unit("steps").AtLeast(1).AtMost(1000).
			Doc("How many steps it covers."),
		String(&p.GPUProfiles, "gpu_profiles", "").
			Doc("A `gpu_profiles.json` of an earlier `hetero-train profile`, so that balancing starts with it. Empty: see `at_start`."),
		Choice(&p.AtStart, "at_start", "auto", "auto", "measure", "off").
			Doc("Compute scores of several ranks where `gpu_profiles` is empty. `auto`: those kept in the user's cache folder, else measured when the ranks have met, in about 2 s at most. `measure`: always measured. `off`: none. One rank alone needs none. Rank 0 decides for all."),
	})
}

// Checkpoint is the [checkpoint] table.
type Checkpoint struct {
	IntervalSteps   int     // 0 = not by steps
	IntervalSeconds float64 // 0 = not by time
	Keep            int
	Best            bool
}

// Keys lists the table's keys.
func (c *Checkpoint) Keys() []Key {
	return each(Key.Operational, []Key{
		Int(&c.IntervalSteps, "interval_steps", 0).Unit("steps").
			Doc("Steps between two checkpoints. 0: not by steps."),
		Float(&c.IntervalSeconds, "interval_seconds", 300).Unit("s").
			Doc("Time between two checkpoints. 0: not by time. With both at 0 only the end is saved."),
		Int(&c.Keep, "keep", 3).AtLeast(1).AtMost(1 << 20).
			Doc("How many of the newest checkpoints stay."),
		Bool(&c.Best, "best", true).
			Doc("Whether the checkpoint with the best evaluation stays besides."),
	})
}
