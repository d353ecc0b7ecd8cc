package observe

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Observers is an observer that calls each of several observers.
type Observers []train.Observer

func (o Observers) StepDone(r *train.StepRecord) {
	for _, x := range o {
		x.StepDone(r)
	}
}

func (o Observers) EvalDone(e train.Evaluation) {
	for _, x := range o {
		x.EvalDone(e)
	}
}

func (o Observers) RolledBack(step int64) {
	for _, x := range o {
		x.RolledBack(step)
	}
}

func (o Observers) Saving() {
	for _, x := range o {
		x.Saving()
	}
}

func (o Observers) Saved(s checkpoint.Saved, took time.Duration) {
	for _, x := range o {
		x.Saved(s, took)
	}
}

func (o Observers) Warn(err error) {
	for _, x := range o {
		x.Warn(err)
	}
}

// Console prints the progress of a run. In text format, it prints a line every few steps, and on a terminal a bar with
// the remaining time. In JSON format, it prints a record instead of each line. Only ranks that print their progress
// have a Console (process.Team.Speaks).
type Console struct {
	run       *assembly.Run
	records   *slog.Logger // writer of records in JSON format; nil in text format
	savesSaid int64        // number of SIGUSR1 signals for which a saved checkpoint was reported
	out       io.Writer    // lines go to the log file, and to standard output or above the bar
	steps     io.Writer    // like out, but for step lines, which an outlet may drop
	log       io.Writer    // log file
	interval  int64        // number of steps between two lines
	peak      float64      // measured peak of the device, FLOP/s; 0: unknown

	bars *mpb.Progress // nil if standard error is not a terminal
	bar  *mpb.Bar

	eta  eta
	left atomic.Int64 // remaining time for the bar, ns

	lastEval, bestEval *train.Evaluation // latest and best evaluation in this process
	never              []int             // classes for which warnOfNever has warned

	// Sums since the last line.
	samples int64
	busy    time.Duration
	count   int64 // number of steps
}

// NewConsole returns a console that prints on standard output and writes to log.
func NewConsole(a *assembly.Run, log io.Writer) *Console {
	log = logs.NewStream(log)
	c := &Console{run: a, log: log, interval: int64(a.Process.Cfg.Train.LogInterval)}
	if a.Foreign == nil {
		c.peak = devices.MeasuredPeak(a.Rank.Device, a.Rank.Precision).PerSecond
	}
	if t := a.Data.Tokens; t != nil && t.Shorter != nil {
		c.peak = 0 // unknown: the number of operations depends on the lengths of the samples
	}
	if a.Process.Opts.Json {
		c.records, c.out, c.steps = a.Process.Opts.OnScreen, log, log
		return c
	}
	c.plain()
	if stderr := a.Process.Opts.Env.Stderr; logs.IsTerminal(stderr) && a.Foreign == nil {
		// A foreign run has no bar, because another program uses the terminal. Write the bar below the Stream, and pass
		// the width: package mpb can determine the width of a terminal only from an *os.File.
		c.bars = mpb.New(mpb.WithOutput(logs.Below(stderr)), mpb.WithAutoRefresh(),
			mpb.WithWidth(logs.TerminalWidth(stderr)), mpb.WithRefreshRate(250*time.Millisecond))
		if logs.IsTerminal(a.Process.Opts.Env.Stdout) {
			// write lines through the bar, so that they appear above it
			c.out = io.MultiWriter(logs.NewStream(c.bars), log)
			c.steps = c.out
		}
		a.Process.Opts.Screen.To(c.bars) // log messages also appear above the bar
	}
	return c
}

// plain selects output without a bar, to standard output and the log file.
func (c *Console) plain() {
	stdout := c.run.Process.Opts.Env.Stdout
	c.out = io.MultiWriter(stdout, c.log)
	c.steps = io.MultiWriter(logs.ProgressOf(stdout), c.log)
}

// Log prints a line. In JSON format, it prints a record with message and attrs instead.
func (c *Console) Log(line, message string, attrs ...any) { c.logTo(c.out, line, message, attrs...) }

func (c *Console) logTo(w io.Writer, line, message string, attrs ...any) {
	io.WriteString(w, line+"\n")
	if c.records != nil {
		c.records.Info(message, attrs...)
	}
}

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

// timeLeft returns the estimated remaining time. It returns 0 if the run has no last step.
func (c *Console) timeLeft(step, total int64) time.Duration {
	if total <= step {
		return 0
	}
	evaluations := int64(0)
	if c.run.Foreign == nil && c.run.Data.HasEval() {
		evaluations = evaluationsLeft(step, total, c.run.StepsPer*int64(c.run.Process.Cfg.Train.EvalInterval))
	}
	return c.eta.left(total-step, evaluations)
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

// Close removes the bar. Later lines appear without a bar.
func (c *Console) Close() {
	if c.bars == nil {
		return
	}
	if c.bar != nil {
		c.bar.Abort(false)
	}
	c.bars.Wait()
	c.run.Process.Opts.Screen.To(logs.Below(c.run.Process.Opts.Env.Stderr))
	c.plain()
	c.bars, c.bar = nil, nil
}
