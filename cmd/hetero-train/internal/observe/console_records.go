package observe

import (
	"fmt"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/train"
)

// stepRecord returns the attributes of the JSON record for a step line. Times are means since the last line.
func (c *Console) stepRecord(r *train.StepRecord, left time.Duration) []any {
	step, score, report := c.busy/time.Duration(c.count), r.Score(), c.run.Report()
	best := report.OfStep()
	attrs := []any{"step", r.Step, "steps", r.Total, "epoch", r.Epoch, "epoch_step", r.EpochStep, "epoch_steps",
		r.EpochSteps, "loss", show.Number(score.Loss),
		best.Key, show.Number(best.Of(score)), "grad_norm", show.Number(r.GradNorm), "learning_rate", r.Rate,
		"step_seconds", step.Seconds(),
		report.RateKey, show.Number(show.PerSecond(c.samples*int64(report.Units), c.busy)), "data_seconds",
		r.Times.Data.Seconds()}
	if fraction, known := c.peakFraction(step); known {
		attrs = append(attrs, "peak_fraction", show.Number(fraction))
	}
	if len(r.Ranks) > 1 {
		sizes := make([]int, len(r.Ranks))
		for rank := range sizes {
			sizes[rank] = r.Ranks[rank].Samples
		}
		attrs = append(attrs, "batch_sizes", sizes)
	}
	if left > 0 {
		attrs = append(attrs, "eta_seconds", math.Round(left.Seconds()))
	}
	return attrs
}

// LogBatch logs the epoch, the number of the batch and the loss of this rank's samples in one step. Every rank calls
// LogBatch.
func LogBatch(a *assembly.Run, r *train.StepRecord) {
	rank := max(a.Process.Opts.Assignment.Rank, 0)
	loss := "no samples"
	if own := r.Ranks[rank].Sums; own.Count > 0 {
		loss = fmt.Sprintf("%.3f", own.Loss/float64(own.Count))
	}
	a.Process.Opts.Log.Debug(fmt.Sprintf("Rank %d | Epoch %d | Batch %d/%d | Loss: %s", rank, r.Epoch, r.EpochStep,
		r.EpochSteps, loss))
}
