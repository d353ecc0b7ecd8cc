package config

// Train is the [train] table.
type Train struct {
	Epochs            int // 0 = no limit, then Steps or MaxSeconds ends the run
	Steps             int // above 0: exactly so many optimizer steps
	MaxSeconds        float64
	Precision         string // auto, f32, bf16, fp16
	GradAccumulation  int    // micro-batches of an optimizer step
	EvalInterval      int    // epochs; 0 = only at the end
	LogInterval       int    // steps
	NormsInterval     int    // steps; 0 = never
	LabelSmoothing    float64
	ClipNorm          float64 // 0 = no clipping
	NaNPatience       int     // steps
	NaNRollbacks      int
	EarlyStopPatience int    // evaluations; 0 = never
	EarlyStopMetric   string // top1, top5, loss
	EarlyStopMinDelta float64
	Resume            string // auto, none, or the path of a checkpoint
}

// Keys lists the table's keys.
func (t *Train) Keys() []Key {
	return []Key{
		Int(&t.Epochs, "epochs", 10).Unit("epochs").Operational().
			Doc("Passes over the training samples; an epoch's incomplete last batch is dropped. 0: no limit, then `steps` or `max_seconds` must end the run."),
		Int(&t.Steps, "steps", 0).Unit("steps").Operational().
			Doc("Length of the run in optimizer steps; it overrides `epochs`. 0: `epochs` decides."),
		Float(&t.MaxSeconds, "max_seconds", 0).Unit("s").Operational().
			Doc("The run is saved and ends after so much time. 0: no limit."),
		Choice(&t.Precision, "precision", "auto", "auto", "f32", "bf16", "fp16").Learnt().
			Doc("Number format of activations and of the weights' working copies; master weights, weight gradients and sums are always f32. `auto`: each rank computes in what its device is fast at: GPUs in bf16 from sm_80 on, else in fp16 with loss scaling; CPUs in f32, or, with AVX512_BF16 or AMX, in the faster of bf16 and f32 when timed at the first start (docs/training.md). Ranks of one run may differ. Any other value is for all ranks. `fp16` needs a GPU."),
		Int(&t.GradAccumulation, "grad_accumulation", 1).Unit("micro-batches").AtLeast(1).AtMost(1 << 20).Learnt().
			Doc("Number of micro-batches into which the global batch is cut, and whose gradients are summed: less memory, and the gradient of the whole batch but for what BatchNorm sees: its statistics are those of a micro-batch, and running statistics move once for each. Must divide `data.batch_size`."),
		Int(&t.EvalInterval, "eval_interval", 1).Unit("epochs").Operational().
			Doc("Epochs between two evaluations. The last step is always evaluated (a run that `max_seconds` ends has not come to it); 0: nothing but that."),
		Int(&t.LogInterval, "log_interval", 10).Unit("steps").AtLeast(1).Operational().
			Doc("Steps between two progress lines."),
		Int(&t.NormsInterval, "norms_interval", 0).Unit("steps").Operational().
			Doc("Steps between two lines of `logs/norms.jsonl`: for each parameter the norms of its gradient before clipping, of itself, and of the step's update. Costs rank 0 the memory of one more copy of the trained parameters, and time in those steps alone. 0: none."),
		Float(&t.LabelSmoothing, "label_smoothing", 0).Below(1).Learnt().
			Doc("Share of the target's probability that is spread evenly over all classes."),
		Float(&t.ClipNorm, "clip_norm", 0).Learnt().
			Doc("Gradients whose global norm exceeds this are scaled down to it. 0: no clipping."),
		Int(&t.NaNPatience, "nan_patience", 10).Unit("steps").AtLeast(1).Operational().
			Doc("A step whose gradient holds NaN or Inf is skipped and counted; after this many in a row the run goes back to its last checkpoint."),
		Int(&t.NaNRollbacks, "nan_rollbacks", 2).Operational().
			Doc("Number of returns to a checkpoint before the next one ends the run (exit 4, diverged)."),
		Int(&t.EarlyStopPatience, "early_stop_patience", 0).Unit("evaluations").Operational().
			Doc("The run ends, saved, once this many evaluations in a row were no better than the best before them. 0: never."),
		Choice(&t.EarlyStopMetric, "early_stop_metric", "top1", "top1", "top5", "loss").Operational().
			Doc("What of an evaluation has to become better for `early_stop_patience`."),
		Float(&t.EarlyStopMinDelta, "early_stop_min_delta", 0).Operational().
			Doc("An evaluation is better if it is so by more than this: of `top1` and `top5` as a fraction, 0.001 is 0.1 %."),
		String(&t.Resume, "resume", "auto").Operational().
			Doc("`auto`: resumes from the newest valid checkpoint of the run, or starts it. `none`: starts afresh and moves the old run aside. Anything else: the folder of the checkpoint to resume from."),
	}
}
