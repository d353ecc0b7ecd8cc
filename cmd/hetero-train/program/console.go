package program

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train"
)

var nan = math.NaN()

// observers tells several.
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

// console shows a run to people: a line every few steps, and on a terminal a bar with the time that is left.
type console struct {
	job       *job
	savesSaid int64     // SIGUSR1s that were answered
	out       io.Writer // stdout, or above the bar, and the log file
	steps     io.Writer // likewise, for lines that a slow reader may miss
	log       io.Writer // the log file
	interval  int64     // steps between two lines
	peak      float64   // FLOP/s that the device reaches at best, 0 = unknown

	bars *mpb.Progress // nil where standard error is no terminal
	bar  *mpb.Bar

	lastEval, bestEval *train.Evaluation // of this process

	// Since the last line.
	samples int64
	busy    time.Duration
	count   int64 // steps
}

func newConsole(j *job, log io.Writer) *console {
	c := &console{job: j, log: log, interval: int64(j.cfg.Train.LogInterval), peak: measuredPeak(j.device, j.precision)}
	c.plain()
	if stderr := j.opts.env.stderr; isTerminal(stderr) {
		// The outlet is no file, so the bars take the width from here; that they are on a terminal is known.
		c.bars = mpb.New(mpb.WithOutput(stderr), mpb.WithAutoRefresh(), mpb.WithWidth(terminalWidth(stderr)), mpb.WithRefreshRate(250*time.Millisecond))
		if isTerminal(j.opts.env.stdout) {
			c.out = io.MultiWriter(c.bars, log) // one screen for both: lines go above the bar
			c.steps = c.out
		}
		j.opts.screen.to(c.bars) // and so do messages
	}
	return c
}

// plain lets lines go to standard output and the log file.
func (c *console) plain() {
	stdout := c.job.opts.env.stdout
	c.out = io.MultiWriter(stdout, c.log)
	c.steps = io.MultiWriter(progressOf(stdout), c.log)
}

func isTerminal(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is in columns.
func terminalWidth(w io.Writer) int {
	const usual = 80
	if width, _, err := term.GetSize(int(fileOf(w).Fd())); err == nil && width > 0 {
		return width
	}
	return usual
}

// measuredPeak is what the device reaches in matrix products at best, 0 where it cannot tell.
func measuredPeak(dev device.Device, precision tensor.DType) float64 {
	m, ok := dev.(device.PeakMeasurer)
	if !ok {
		return 0
	}
	peak, err := m.MeasurePeak(peakOf(dev, precision), 200*time.Millisecond)
	if err != nil {
		return 0 // only the share of the peak is missing then
	}
	return peak
}

// peakOf is the limit that a network of this precision works against.
func peakOf(dev device.Device, precision tensor.DType) device.Peak {
	switch {
	case precision == tensor.BF16 && dev.Info().FastBF16:
		return device.PeakBF16
	case precision == tensor.F16 && dev.Info().Kind == "cuda":
		return device.PeakF16
	}
	return device.PeakF32
}

// begin says what will run.
func (c *console) begin(resume *checkpoint.State) {
	j := c.job
	info, r, here := j.device.Info(), j.replica, ""
	if j.team != nil {
		here = " on this rank"
	}
	fmt.Fprintf(c.out, "device %s: %s, %s, %d threads, %.1f GiB", info.Name, info.Model, info.ISA, info.Threads, gib(info.MemoryBytes))
	if c.peak > 0 {
		fmt.Fprintf(c.out, ", peak %.0f GFLOP/s in %v", c.peak/1e9, j.precision)
	}
	fmt.Fprintf(c.out, "\nmodel %s: %.2f million parameters, %.2f GFLOP a step%s, %v, %.2f GiB of device memory\n",
		j.cfg.Model.Name, float64(r.ParamCount())/1e6, float64(r.FLOPs())/1e9, here, j.precision, gib(r.PredictedBytes()))
	if n := r.FrozenCount(); n > 0 {
		fmt.Fprintf(c.out, "frozen: %.2f million of the parameters are not trained\n", float64(n)/1e6)
		if resume == nil && j.cfg.Model.InitFrom == "" {
			j.opts.log.Warn("frozen parameters keep their random initial values: model.init_from is empty")
		}
	}
	fmt.Fprintf(c.out, "data %s: %d training", j.data.name, j.data.Train.Len())
	if j.data.Eval != nil {
		fmt.Fprintf(c.out, ", %d evaluation", j.data.Eval.Len())
	}
	fmt.Fprintf(c.out, " samples, %d classes, batch %d, %d steps an epoch\n", len(j.data.Train.Classes()), j.cfg.Data.BatchSize, j.stepsPer)
	c.note()
	if resume != nil {
		fmt.Fprintf(c.out, "resuming after step %d from %s\n", resume.Step, j.run.Checkpoint.Path)
	}
	if c.bars != nil && j.steps > 0 {
		c.bar = c.bars.AddBar(j.steps, mpb.PrependDecorators(decor.CountersNoUnit("step %d/%d")),
			mpb.AppendDecorators(decor.Percentage(), decor.Name(" left "), decor.AverageETA(decor.ET_STYLE_GO)))
		if resume != nil {
			c.bar.SetCurrent(resume.Step)
			c.bar.DecoratorAverageAdjust(time.Now())
		}
	}
}

// StepDone implements train.Observer.
func (c *console) StepDone(r *train.StepRecord) {
	c.samples += int64(r.Samples)
	c.busy += r.Times.Total()
	c.count++
	if c.bar != nil {
		c.bar.SetTotal(max(r.Total, r.Step+1), false) // the bar would go at its end; a changed batch size changes the total
		c.bar.SetCurrent(r.Step)
	}
	switch {
	case r.Lowered:
		fmt.Fprintf(c.out, "step %s | skipped: the gradient leaves the range of f16, the loss scale is lowered to %.0f (%d skipped so far)\n", stepOf(r), r.Scale/2, r.Skipped)
	case !r.Updated:
		fmt.Fprintf(c.out, "step %s | skipped: the gradient is not finite (%d skipped so far)\n", stepOf(r), r.Skipped)
	}
	if r.Step%c.interval != 0 && r.Step != r.Total && r.Step != 1 {
		return
	}
	fmt.Fprint(c.steps, c.line(r))
	c.samples, c.busy, c.count = 0, 0, 0
}

// stepOf is "12/100", or "12" where the run has no last step.
func stepOf(r *train.StepRecord) string {
	if r.Total == 0 {
		return fmt.Sprint(r.Step)
	}
	return fmt.Sprintf("%d/%d", r.Step, r.Total)
}

// line is the step line: loss, norm and rate of the last step, times as means since the last line.
func (c *console) line(r *train.StepRecord) string {
	var b strings.Builder
	step := c.busy / time.Duration(c.count)
	fmt.Fprintf(&b, "step %s | epoch %d | loss %.4f | top-1 %.1f %% | norm %.3f | lr %.2e | %s | %.0f img/s", stepOf(r), r.Epoch,
		r.Loss/float64(r.Samples), 100*float64(r.Top1)/float64(r.Samples), r.GradNorm, r.Rate, step.Round(100*time.Microsecond), perSecond(c.samples, c.busy))
	if c.peak > 0 {
		reached := float64(c.job.replica.FLOPs()) / step.Seconds()
		c.peak = max(c.peak, reached) // it was measured in a bad moment
		fmt.Fprintf(&b, " | %.0f %% of peak", 100*reached/c.peak)
	}
	if len(r.Ranks) > 1 {
		fmt.Fprintf(&b, " | shares %s", sharesOf(r.Ranks))
	}
	if r.EpochReplaced > 0 {
		fmt.Fprintf(&b, " | %d unreadable", r.EpochReplaced)
	}
	if data := r.Times.Data; data > step/20 {
		fmt.Fprintf(&b, " | waited %s for data", data.Round(100*time.Microsecond))
	}
	left := time.Duration(r.Total-r.Step) * step
	if c.bars == nil && left > 0 {
		fmt.Fprintf(&b, " | %s left", left.Round(time.Second))
	}
	b.WriteByte('\n')
	return b.String()
}

// sharesOf is "96/64/48", or the least and the most of many ranks.
func sharesOf(ranks []train.RankStep) string {
	const most = 8
	if len(ranks) <= most {
		texts := make([]string, len(ranks))
		for i, r := range ranks {
			texts[i] = strconv.Itoa(r.Samples)
		}
		return strings.Join(texts, "/")
	}
	low, high := ranks[0].Samples, ranks[0].Samples
	for _, r := range ranks {
		low, high = min(low, r.Samples), max(high, r.Samples)
	}
	return fmt.Sprintf("%d to %d on %d ranks", low, high, len(ranks))
}

// RolledBack implements train.Observer.
func (c *console) RolledBack(step int64) {
	c.samples, c.busy, c.count = 0, 0, 0
	if c.bar != nil {
		c.bar.SetCurrent(step)
	}
}

// EvalDone implements train.Observer.
func (c *console) EvalDone(e train.Evaluation) {
	best := ""
	c.lastEval = &e
	if e.Best {
		best = " | best so far"
		c.bestEval = &e
	}
	if e.Averaged {
		best = " | averaged weights" + best
	}
	fmt.Fprintf(c.out, "eval after step %d (epoch %d) | loss %.4f | top-1 %.2f %% | top-5 %.2f %% | %d samples in %s%s\n",
		e.Step, e.Epoch, e.Loss, 100*e.Top1, 100*e.Top5, e.Samples, e.Took.Round(time.Millisecond), best)
}

// Saving implements train.Observer.
func (c *console) Saving() {}

// Saved implements train.Observer.
func (c *console) Saved(s checkpoint.Saved, took time.Duration) {
	say := c.job.opts.log.Debug
	if asked := c.job.agreed.Load(); asked > c.savesSaid {
		say, c.savesSaid = c.job.opts.log.Info, asked
	}
	say("saved", "checkpoint", s.Path, "megabytes", s.Bytes>>20, "took", took)
}

// Warn implements train.Observer.
func (c *console) Warn(err error) {
	c.job.opts.log.Warn(err.Error())
}

// end says how the run went.
func (c *console) end(r train.Result, err error) {
	if err != nil {
		fmt.Fprintf(c.out, "ended after %d steps: %v\n", r.Steps, err)
		c.note()
		return
	}
	how := "done"
	if r.OutOfTime {
		how = "out of time (train.max_seconds): saved, " + c.job.wayOn()
	}
	if r.GaveUp != "" {
		how = "stopped early (" + r.GaveUp + "): saved"
	}
	fmt.Fprintf(c.out, "%s: %d steps, %.2f epochs | final training loss %.4f", how, r.Steps, r.Epochs, r.LastLoss)
	if r.LastEval != nil {
		fmt.Fprintf(c.out, " | top-1 %.2f %%", 100*r.LastEval.Top1)
	}
	if r.Best != nil {
		fmt.Fprintf(c.out, " | best top-1 %.2f %% at step %d", 100*float64(r.Best.Value), r.Best.Step)
	}
	if r.Replaced > 0 {
		fmt.Fprintf(c.out, " | %d unreadable samples replaced", r.Replaced)
	}
	if r.Samples > 0 {
		fmt.Fprintf(c.out, " | %.0f img/s", perSecond(r.Samples, r.TrainTime))
	}
	fmt.Fprintf(c.out, " | %s\n", c.job.run.Dir)
	c.note()
}

// note says what a reader of the figures must know.
func (c *console) note() {
	for _, note := range c.job.notes() {
		fmt.Fprintf(c.out, "NOTE %s\n", note)
	}
}

// close takes the bar away. Lines go on without it.
func (c *console) close() {
	if c.bars == nil {
		return
	}
	if c.bar != nil {
		c.bar.Abort(false)
	}
	c.bars.Wait()
	c.job.opts.screen.to(c.job.opts.env.stderr)
	c.plain()
	c.bars, c.bar = nil, nil
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
