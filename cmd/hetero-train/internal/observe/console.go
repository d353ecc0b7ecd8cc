package observe

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/train"
)

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

// note prints the testbed's conditions that a reader needs to interpret the numbers. It does not print a fallback of
// the data set, which OpenData has reported.
func (c *Console) note() {
	for _, note := range c.run.Lab.Notes {
		c.Log("NOTE "+note, "note", "text", note)
	}
}
