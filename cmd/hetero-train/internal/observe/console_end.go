package observe

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// End prints the result of the run.
func (c *Console) End(r train.Result, err error) {
	defer c.note()
	if err != nil {
		state, _ := (&experiment.Result{Exit: exit.Code(err)}).Outcome()
		c.Log(fmt.Sprintf("ended after %d steps: %v", r.Steps, err), "ended", "state", string(state), "steps", r.Steps,
			"error", err.Error(), "exit_code", exit.Code(err))
		return
	}
	how, message, state := "done", "done", experiment.Finished
	if r.OutOfTime {
		how, message, state = "stopped (train.max_seconds), saved; the run "+c.run.Process.WayOn(r.Steps), "stopped",
			experiment.Stopped
	}
	if r.GaveUp != "" {
		how, message = "finished early ("+r.GaveUp+"): saved", "finished early"
	}
	line := fmt.Sprintf("%s: %d steps, %.2f epochs on %s | final training loss %s", how, r.Steps, r.Epochs,
		c.run.Data.Name, show.Figure("%.4f", r.LastLoss))
	attrs := []any{"state", string(state), "steps", r.Steps, "epochs", r.Epochs, "dataset", c.run.Data.Name,
		"final_train_loss", show.Number(r.LastLoss)}
	report := c.run.Report()
	best := report.Best()
	if r.LastEval != nil {
		value := best.Of(r.LastEval.Score())
		line += " | " + best.Text(value, 2)
		attrs = append(attrs, best.Key, show.Number(value))
	}
	if r.Best != nil {
		best := report.Named(r.Best.Metric)
		line += fmt.Sprintf(" | best %s at step %d", best.Text(float64(r.Best.Value), 2), r.Best.Step)
		attrs = append(attrs, "best_"+best.Key, show.Number(r.Best.Value), "best_step", r.Best.Step)
	}
	if r.Replaced > 0 {
		line += fmt.Sprintf(" | %d unreadable samples replaced", r.Replaced)
		attrs = append(attrs, "unreadable_samples", r.Replaced)
	}
	if r.Samples > 0 {
		rate := show.PerSecond(r.Trained.Samples*int64(report.Units), r.Trained.Time)
		line += fmt.Sprintf(" | %s %s/s", analysis.Digits(rate), report.Unit)
		attrs = append(attrs, report.RateKey, show.Number(rate))
	}
	if c.run.Folder != nil { // only rank 0 has opened the folder
		line += " | " + c.run.Folder.Dir
		attrs = append(attrs, "folder", c.run.Folder.Dir)
	}
	c.Log(line, message, attrs...)
}
