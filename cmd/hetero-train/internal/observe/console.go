package observe

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// observers calls several observers.
type observers []train.Observer

func (o observers) StepDone(r *train.StepRecord) {
	for _, x := range o {
		x.StepDone(r)
	}
}

func (o observers) EvalDone(e train.Evaluation) {
	for _, x := range o {
		x.EvalDone(e)
	}
}

func (o observers) RolledBack(step int64) {
	for _, x := range o {
		x.RolledBack(step)
	}
}

func (o observers) Saving() {
	for _, x := range o {
		x.Saving()
	}
}

func (o observers) Saved(s checkpoint.Saved, took time.Duration) {
	for _, x := range o {
		x.Saved(s, took)
	}
}

func (o observers) Warn(err error) {
	for _, x := range o {
		x.Warn(err)
	}
}

// Console prints a run. Text has a line every few steps, and on a terminal a bar with the remaining time; JSON has a
// record in place of each line. Rank 0 has a Console, and so has the first rank of every other machine.
type Console struct {
	run       *assembly.Run
	records   *slog.Logger // writes a record in place of each line on the screen; nil: text
	savesSaid int64        // number of SIGUSR1s that were reported
	out       io.Writer    // stdout, or above the bar, and the log file
	steps     io.Writer    // likewise, for lines that may be dropped
	log       io.Writer    // the log file
	interval  int64        // steps between two lines
	peak      float64      // measured peak of the device, FLOP/s; 0 = unknown

	bars *mpb.Progress // nil if standard error is not a terminal
	bar  *mpb.Bar

	eta  eta
	left atomic.Int64 // ns, for the bar

	lastEval, bestEval *train.Evaluation // of this process

	// Since the last line:
	samples int64
	busy    time.Duration
	count   int64 // steps
}

// NewConsole prints the run on standard output and in the log file.
func NewConsole(a *assembly.Run, log io.Writer) *Console {
	log = logs.NewStream(log)
	c := &Console{run: a, log: log, interval: int64(a.Cfg.Train.LogInterval), peak: devices.MeasuredPeak(a.Device, a.Precision).PerSecond}
	if a.Opts.Json {
		c.records, c.out, c.steps = a.Opts.OnScreen, log, log
		return c
	}
	c.plain()
	if stderr := a.Opts.Env.Stderr; logs.IsTerminal(stderr) {
		// The outlet is not a file, so the bars cannot determine the width or that it is a terminal.
		c.bars = mpb.New(mpb.WithOutput(logs.Below(stderr)), mpb.WithAutoRefresh(), mpb.WithWidth(logs.TerminalWidth(stderr)), mpb.WithRefreshRate(250*time.Millisecond))
		if logs.IsTerminal(a.Opts.Env.Stdout) {
			c.out = io.MultiWriter(logs.NewStream(c.bars), log) // one writer for both: lines appear above the bar
			c.steps = c.out
		}
		a.Opts.Screen.To(c.bars) // messages too
	}
	return c
}

// plain writes lines to standard output and the log file.
func (c *Console) plain() {
	stdout := c.run.Opts.Env.Stdout
	c.out = io.MultiWriter(stdout, c.log)
	c.steps = io.MultiWriter(logs.ProgressOf(stdout), c.log)
}

// Say prints one line, or the same content as a record.
func (c *Console) Say(line, message string, attrs ...any) { c.sayTo(c.out, line, message, attrs...) }

func (c *Console) sayTo(w io.Writer, line, message string, attrs ...any) {
	io.WriteString(w, line+"\n")
	if c.records != nil {
		c.records.Info(message, attrs...)
	}
}

// StepDone implements train.Observer.
func (c *Console) StepDone(r *train.StepRecord) {
	c.samples += int64(r.Samples)
	c.busy += r.Times.Total()
	c.count++
	c.eta.stepTook(r.Times.Total())
	left := c.timeLeft(r.Step, r.Total)
	c.left.Store(int64(left))
	if c.bar != nil {
		// The bar ends at its total; a changed batch size changes the total.
		c.bar.SetTotal(max(r.Total, r.Step+1), false)
		c.bar.SetCurrent(r.Step)
	}
	if !r.Updated {
		reason := "the gradient is not finite"
		if r.Lowered {
			reason = fmt.Sprintf("the gradient exceeds the range of f16; loss scale lowered to %.0f", r.Scale/2)
		}
		c.Say(fmt.Sprintf("step %s | skipped: %s (%d skipped so far)", stepOf(r), reason, r.Skipped), "step skipped", "step", r.Step, "reason", reason, "skipped_steps", r.Skipped)
	}
	if r.Step%c.interval != 0 && r.Step != r.Total && r.Step != 1 {
		return
	}
	c.sayTo(c.steps, c.line(r, left), "step", c.stepRecord(r, left)...)
	LogBatch(c.run, r)
	c.samples, c.busy, c.count = 0, 0, 0
}

// timeLeft returns 0 if the run has no last step.
func (c *Console) timeLeft(step, total int64) time.Duration {
	if total <= step {
		return 0
	}
	evaluations := int64(0)
	if c.run.Data.HasEval() {
		evaluations = evaluationsLeft(step, total, c.run.StepsPer*int64(c.run.Cfg.Train.EvalInterval))
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
	attrs := []any{"step", e.Step, "epoch", e.Epoch, "loss", show.Number(e.Loss)}
	for _, m := range c.run.Report().Metrics {
		attrs = append(attrs, m.Key, show.Number(m.Of(e.Score())))
	}
	attrs = append(attrs, "samples", e.Samples, "seconds", e.Took.Seconds(), "best", e.Best, "averaged", e.Averaged)
	c.Say(fmt.Sprintf("eval after step %d (epoch %d) | loss %.4f | %s | %d samples in %s%s",
		e.Step, e.Epoch, e.Loss, strings.Join(c.run.Report().Texts(e.Score(), 2), " | "), e.Samples, show.Duration(e.Took), note), "evaluation", attrs...)
}

// Saving implements train.Observer.
func (c *Console) Saving() {}

// Saved implements train.Observer.
func (c *Console) Saved(s checkpoint.Saved, took time.Duration) {
	say := c.run.Opts.Log.Debug
	if asked := c.run.Agreed.Load(); asked > c.savesSaid {
		say, c.savesSaid = c.run.Opts.Log.Info, asked
	}
	say("saved", "checkpoint", s.Path, "megabytes", s.Bytes>>20, "took", took)
}

// Warn implements train.Observer.
func (c *Console) Warn(err error) {
	c.run.Opts.Log.Warn(err.Error())
}

// Close removes the bar. Later lines are printed without it.
func (c *Console) Close() {
	if c.bars == nil {
		return
	}
	if c.bar != nil {
		c.bar.Abort(false)
	}
	c.bars.Wait()
	c.run.Opts.Screen.To(logs.Below(c.run.Opts.Env.Stderr))
	c.plain()
	c.bars, c.bar = nil, nil
}
