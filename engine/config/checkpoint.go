package config

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
