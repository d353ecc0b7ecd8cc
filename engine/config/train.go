package config

// Train is the [train] table.
type Train struct {
	Epochs            int // 0 = no limit; Steps or MaxSeconds then ends the run
	Steps             int // if above 0, the exact number of optimizer steps
	MaxSeconds        float64
	Precision         string // auto, f32, bf16, fp16
	GradAccumulation  int    // micro-batches per optimizer step
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
		Int(&t.Epochs, "epochs", 10).Unit("epochs").Operational().OverriddenBy("train.steps").
			Doc("Passes over the training samples; an epoch's incomplete last batch is dropped. 0: no limit, then `steps` or `max_seconds` must end the run."),
		Int(&t.Steps, "steps", 0).Unit("steps").Operational().
			Doc("Length of the run in optimizer steps. 0: `epochs` decides."),
		Float(&t.MaxSeconds, "max_seconds", 0).Unit("s").Operational().
			Doc("The run saves and ends after this time. 0: no limit."),
		Choice(&t.Precision, "precision", "auto", "auto", "f32", "bf16", "fp16").Learnt().
			Doc("Number format of activations and of the weights' working copies; master weights, weight gradients and sums are always f32. `auto`: each rank uses the fastest suitable format of its device. GPUs: bf16 from sm_80 on, else fp16 with loss scaling. CPUs: f32, or with AVX512_BF16 or AMX the faster of bf16 and f32 when timed at the first start (docs/training.md). Ranks of one run may differ. Any other value applies to all ranks. `fp16` needs a GPU."),
		Int(&t.GradAccumulation, "grad_accumulation", 1).Unit("micro-batches").AtLeast(1).AtMost(1 << 20).Learnt().
			Doc("Number of micro-batches of the global batch, whose gradients are summed. More micro-batches need less memory and give the gradient of the whole batch, except for BatchNorm: its statistics are those of a micro-batch, and running statistics are updated once per micro-batch. Must divide `data.batch_size`."),
		Int(&t.EvalInterval, "eval_interval", 1).Unit("epochs").Operational().
			Doc("Epochs between two evaluations. The last step is always evaluated, unless `max_seconds` ends the run before it. 0: only the last step."),
		Int(&t.LogInterval, "log_interval", 10).Unit("steps").AtLeast(1).Operational().
			Doc("Steps between two progress lines."),
		Int(&t.NormsInterval, "norms_interval", 0).Unit("steps").Operational().
			Doc("Steps between two lines of `logs/norms.jsonl`: for each parameter the norms of its gradient before clipping, of itself, and of the step's update. It costs rank 0 the memory of one more copy of the trained parameters, and time in those steps only. 0: none."),
		Float(&t.LabelSmoothing, "label_smoothing", 0).Below(1).Learnt().
			Doc("Fraction of the target's probability that is spread evenly over all classes."),
		Float(&t.ClipNorm, "clip_norm", 0).Learnt().
			Doc("Gradients whose global norm exceeds this are scaled down to it. 0: no clipping."),
		Int(&t.NaNPatience, "nan_patience", 10).Unit("steps").AtLeast(1).Operational().
			Doc("A step whose gradient contains NaN or Inf is skipped and counted. After this many in a row the run returns to its last checkpoint."),
		Int(&t.NaNRollbacks, "nan_rollbacks", 2).Operational().
			Doc("Number of returns to a checkpoint before the next one ends the run (exit 4, diverged)."),
		Int(&t.EarlyStopPatience, "early_stop_patience", 0).Unit("evaluations").Operational().
			Doc("The run saves and ends after this many consecutive evaluations without improvement over the best one before them. 0: never."),
		Choice(&t.EarlyStopMetric, "early_stop_metric", "top1", "top1", "top5", "loss").Operational().Only(IsNot("train.early_stop_patience", 0)).
			Doc("Metric that has to improve for `early_stop_patience`."),
		Float(&t.EarlyStopMinDelta, "early_stop_min_delta", 0).Operational().Only(IsNot("train.early_stop_patience", 0)).
			Doc("An evaluation counts as an improvement only if the metric improves by more than this. For `top1` and `top5` it is a fraction: 0.001 is 0.1 %."),
		String(&t.Resume, "resume", "auto").Operational().
			Doc("`auto`: resumes from the newest valid checkpoint of the run, or starts the run. `none`: starts again and moves the old run to another name. Other values: the folder of the checkpoint to resume from."),
	}
}
