package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
)

// StepDone implements train.Observer.
func (c *Console) StepDone(r *train.StepRecord) {
	c.samples += int64(r.Samples)
	c.busy += r.Took
	c.count++
	c.eta.stepTook(r.Took)
	left := c.timeLeft(r.Step, r.Total)
	c.left.Store(int64(left))
	if c.bar != nil {
		// The bar ends when it reaches its total, so keep the total above the current step.
		c.bar.SetTotal(max(r.Total, r.Step+1), false)
		c.bar.SetCurrent(r.Step)
	}
	if !r.Updated {
		reason := "the gradient is not finite"
		if r.Lowered {
			reason = fmt.Sprintf("the gradient exceeds the range of f16; loss scale lowered to %.0f", r.Scale/2)
		}
		c.Log(fmt.Sprintf("step %s | skipped: %s (%d skipped so far)", stepOf(r), reason, r.Skipped), "step skipped",
			"step", r.Step, "reason", reason, "skipped_steps", r.Skipped)
	}
	if r.Step%c.interval != 0 && r.Step != r.Total && r.Step != 1 {
		return
	}
	c.logTo(c.steps, c.line(r, left), "step", c.stepRecord(r, left)...)
	LogBatch(c.run, r)
	c.samples, c.busy, c.count = 0, 0, 0
}

// RolledBack implements train.Observer.
func (c *Console) RolledBack(step int64) {
	c.samples, c.busy, c.count = 0, 0, 0
	if c.bar != nil {
		c.bar.SetCurrent(step)
	}
}

// EvalDone implements train.Observer.
func (c *Console) EvalDone(e train.Evaluation) {
	note := ""
	c.lastEval = &e
	if e.Best {
		note = " | best so far"
		c.bestEval = &e
	}
	if e.Averaged {
		note = " | averaged weights" + note
	}
	c.eta.evalTook(e.Took)
	c.warnOfNever(e)
	attrs := []any{"step", e.Step, "epoch", e.Epoch, "loss", show.Number(e.Loss)}
	for _, m := range c.run.Report().Metrics {
		attrs = append(attrs, m.Key, show.Number(m.Of(e.Score())))
	}
	attrs = append(attrs, "samples", e.Samples, "seconds", e.Took.Seconds(), "best", e.Best, "averaged", e.Averaged)
	c.Log(fmt.Sprintf("eval after step %d (epoch %d) | loss %.4f | %s | %d samples in %s%s",
		e.Step, e.Epoch, e.Loss, strings.Join(c.run.Report().Texts(e.Score(), 2), " | "), e.Samples,
		show.Duration(e.Took), note), "evaluation", attrs...)
}

// warnOfNever warns if an evaluation never predicts some classes. It warns only once for each class, because with many
// classes, each of the first evaluations misses other classes.
func (c *Console) warnOfNever(e train.Evaluation) {
	warned := func(class int) bool { return slices.Contains(c.never, class) }
	if fresh := slices.DeleteFunc(slices.Clone(e.Never), warned); len(fresh) > 0 {
		advice := "; checkpoint.best_metric = \"macro_f1\" counts all classes alike"
		if !c.run.Report().Independent {
			advice += ", and train.class_weights gives rare classes more weight"
		}
		c.run.Process.Opts.Log.Warn(task.DescribeNever(e.Never, c.run.Data.Classes())+advice, "step", e.Step)
		c.never = append(c.never, fresh...)
	}
}

// Saving implements train.Observer.
func (c *Console) Saving() {}

// Saved implements train.Observer.
func (c *Console) Saved(s checkpoint.Saved, took time.Duration) {
	write := c.run.Process.Opts.Log.Debug
	if asked := c.run.Agreed.Load(); asked > c.savesSaid {
		write, c.savesSaid = c.run.Process.Opts.Log.Info, asked
	}
	write("saved", "checkpoint", s.Path, "megabytes", s.Bytes>>20, "took", took)
}

// Warn implements train.Observer.
func (c *Console) Warn(err error) {
	c.run.Process.Opts.Log.Warn(err.Error())
}
