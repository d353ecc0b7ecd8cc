package config

// Train contains the keys of table [train].
type Train struct {
	Epochs            int // 0: no limit by epochs; Steps or MaxSeconds then ends the run
	Steps             int // exact number of optimizer steps; 0: no limit by steps
	MaxSeconds        float64
	Precision         string // "auto", "f32", "bf16" or "fp16"
	Recompute         string // auto, off or all: activation recomputation
	GradAccumulation  int    // micro-batches per optimizer step; 0: chosen at the start, see MicroBatches
	EvalInterval      int    // epochs; 0: evaluation at the end only
	LogInterval       int    // steps
	NormsInterval     int    // steps; 0: never
	LabelSmoothing    float64
	ClassWeights      []string // "balanced", or NAME=WEIGHT for some classes; empty: all 1
	ClipNorm          float64  // 0: no clipping
	NaNPatience       int      // steps
	NaNRollbacks      int
	EarlyStopPatience int    // evaluations; 0: no early stop
	EarlyStopMetric   string // "top1", "top5" or "loss"
	EarlyStopMinDelta float64
	Resume            string // "auto", "none", or the path of a checkpoint

	chosen int // number of micro-batches that SetMicroBatches set; 0: none yet
}

// MicroBatches returns the number of micro-batches of an optimizer step. If the program chooses this number
// (GradAccumulation is 0), it is 1 until SetMicroBatches is called.
func (t *Train) MicroBatches() int { return max(t.GradAccumulation, t.chosen, 1) }

// SetMicroBatches sets the number of micro-batches if the program chooses it (GradAccumulation is 0).
func (t *Train) SetMicroBatches(n int) {
	if t.GradAccumulation == 0 {
		t.chosen = n
	}
}

// Keys implements [Options].
func (t *Train) Keys() []Key {
	return []Key{
		Int(&t.Epochs, "epochs", 10).Unit("epochs").Operational().OverriddenBy("train.steps").
			Doc("Number of passes over the training samples. `data.drop_last` determines the use of the incomplete last batch of an epoch. 0: no limit; `steps` or `max_seconds` must then end the run."),
		Int(&t.Steps, "steps", 0).Unit("steps").Operational().
			Doc("Length of the run in optimizer steps. 0: `epochs` gives the length."),
		Float(&t.MaxSeconds, "max_seconds", 0).Unit("s").Operational().
			Doc("Maximum time of the run. After this time, the run saves and ends. 0: no limit."),
		Choice(&t.Precision, "precision", "auto", "auto", "f32", "bf16", "fp16").Learnt().
			Doc("Number format of activations and of the working copies of the weights. Master weights, weight gradients and sums are always f32. `auto`: each rank uses the fastest suitable format of its device, so the formats of ranks can differ. GPUs: bf16 from sm_80 on, else fp16 with loss scaling. CPUs: f32. On a CPU with AVX512_BF16 or AMX, the program measures bf16 and f32 at its first start and uses the faster one (docs/training.md). Other values apply to all ranks. `fp16` needs a GPU."),
		Int(&t.GradAccumulation, "grad_accumulation", 1).Unit("micro-batches").AtMost(1 << 20).Learnt().
			Doc("Number of micro-batches per global batch; their gradients are summed. More micro-batches need less memory. The gradient equals the gradient of the whole batch, except for BatchNorm: BatchNorm computes its statistics over a micro-batch, and updates its running statistics once per micro-batch. Must divide `data.batch_size`. 0: at the start, the program times steps with several numbers that fit in the memory, and chooses the fastest (docs/training.md). With BatchNorm, 0 means 1, because another number would change the result."),
		Choice(&t.Recompute, "recompute", "auto", "auto", "off", "all").Operational().
			Doc("Activation recomputation (activation checkpointing): the backward pass computes activations again instead of keeping them in memory. `auto`: only if the memory of the device is too small, and for as few layers as possible. `off`: never. `all`: for all layers but the last. The result is bit-equal to that without recomputation; each step takes up to a third longer."),
		Int(&t.EvalInterval, "eval_interval", 1).Unit("epochs").SilentAtEnd("only the last step is evaluated").
			Operational().
			Doc("Epochs between two evaluations. The last step is always evaluated, unless `max_seconds` ends the run. 0: only the last step."),
		Int(&t.LogInterval, "log_interval", 10).Unit("steps").Silent(
			"only its first and last step have a progress line").AtLeast(1).Operational().
			Doc("Steps between two progress lines."),
		Int(&t.NormsInterval, "norms_interval", 0).Unit("steps").Silent("logs/norms.jsonl has no line").Operational().
			Doc("Steps between two lines of `logs/norms.jsonl`. A line has three norms for each parameter: the norm of its gradient before clipping, of its value, and of its update. Rank 0 then needs memory for an extra copy of the trained parameters. Only the steps with a line take extra time. 0: none."),
		Float(&t.LabelSmoothing, "label_smoothing", 0).Below(1).Learnt().
			Doc("Fraction of the target's probability to spread evenly over all classes."),
		Strings(&t.ClassWeights, "class_weights").Learnt().
			Doc("Factors of the loss by the class of the sample, for data sets whose classes have unequal numbers of samples: `[\"balanced\"]`, or `[\"NAME=WEIGHT\", …]`, where other classes have the weight 1. `balanced`: number of samples / (number of classes · samples of the class). The loss is the mean of weight · loss over the samples of a step. PyTorch divides by the sum of the weights instead. Evaluations have no weights. Empty: no weights."),
		Float(&t.ClipNorm, "clip_norm", 0).Learnt().
			Doc("Maximum global norm of the gradient. Larger gradients are scaled down to this norm. 0: no clipping."),
		Int(&t.NaNPatience, "nan_patience", 10).Unit("steps").Silent("it never returns to a checkpoint").AtLeast(1).
			Operational().
			Doc("Number of consecutive steps with NaN or Inf in the gradient after which the run returns to its last checkpoint. Each such step is skipped and counted."),
		Int(&t.NaNRollbacks, "nan_rollbacks", 2).Operational().
			Doc("Maximum number of returns to a checkpoint. If one more would be needed, the run ends (exit 4, diverged)."),
		Int(&t.EarlyStopPatience, "early_stop_patience", 0).Unit("evaluations").SilentAtEnd("it cannot end early").
			Operational().
			Doc("Number of consecutive evaluations without improvement after which the run saves and ends. 0: no early stopping."),
		Choice(&t.EarlyStopMetric, "early_stop_metric", "top1", "top1", "top5", "loss", "perplexity", "f1",
			"macro_f1").Operational().Only(IsNot("train.early_stop_patience", 0)).
			Doc("Metric of early stopping. Images: `top1`, `top5`, `f1`, `macro_f1` or `loss`. Text: `top1` (accuracy), `perplexity` or `loss`. Labelled texts: `top1` (accuracy), `f1`, `macro_f1` or `loss`."),
		Float(&t.EarlyStopMinDelta, "early_stop_min_delta", 0).Operational().Only(
			IsNot("train.early_stop_patience", 0)).
			Doc("Minimum change of the metric that counts as an improvement. `top1` and `top5` are fractions: 0.001 is 0.1 %."),
		String(&t.Resume, "resume", "auto").PathOrObjects().Operational().
			Doc("`auto`: resume from the newest valid checkpoint of the run; without a checkpoint, start the run. `none`: rename the folder of the old run and start again. Other values: the name or the folder of a run, or the folder of a checkpoint, on this machine or in a bucket (`s3://BUCKET/KEY`)."),
	}
}
