package observe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// stepOf returns a text such as "12/100", or "12" if the run has no last step.
func stepOf(r *train.StepRecord) string {
	if r.Total == 0 {
		return fmt.Sprint(r.Step)
	}
	return fmt.Sprintf("%d/%d", r.Step, r.Total)
}

// line formats the step line. Loss, norm and learning rate are values of the last step; times are means since the last
// line.
func (c *Console) line(r *train.StepRecord, left time.Duration) string {
	var b strings.Builder
	step := c.busy / time.Duration(c.count)
	score, report := r.Score(), c.run.Report()
	fmt.Fprintf(&b, "step %s | epoch %d | loss %.4f", stepOf(r), r.Epoch, score.Loss)
	if best := report.OfStep(); best.Key != task.Loss.Key {
		fmt.Fprintf(&b, " | %s", best.Text(best.Of(score), 1))
	}
	for _, v := range []struct {
		format string
		value  float64
	}{{" | norm %.3f", r.GradNorm}, {" | lr %.2e", r.Rate}} {
		if c.run.Foreign == nil || !math.IsNaN(v.value) { // leave out a value that another program does not report
			fmt.Fprintf(&b, v.format, v.value)
		}
	}
	fmt.Fprintf(&b, " | %s | %s %s/s", show.Duration(step),
		analysis.Digits(show.PerSecond(c.samples*int64(report.Units), c.busy)), report.Unit)
	if fraction, known := c.peakFraction(step); known {
		fmt.Fprintf(&b, " | %.0f %% of peak", 100*fraction)
	}
	if len(r.Ranks) > 1 {
		fmt.Fprintf(&b, " | shares %s", sharesOf(r.Ranks))
	}
	if r.EpochReplaced > 0 {
		fmt.Fprintf(&b, " | %d unreadable", r.EpochReplaced)
	}
	if data := r.Times.Data; data > step/20 {
		fmt.Fprintf(&b, " | waited %s for data", show.Duration(data))
	}
	if c.bars == nil && left > 0 {
		fmt.Fprintf(&b, " | %s left", etaText(left))
	}
	return b.String()
}

// peakFraction returns the fraction of the device's peak that a step of this duration reaches. If a step exceeds the
// peak, the measured peak is wrong. In this case, peakFraction warns once, and known is false for all later steps.
func (c *Console) peakFraction(step time.Duration) (fraction float64, known bool) {
	if c.peak == 0 {
		return 0, false
	}
	reached := float64(c.run.Replica.FLOPs()) / step.Seconds()
	fraction, known = devices.FractionOfPeak(reached, device.Reached{PerSecond: c.peak})
	if !known {
		c.run.Process.Opts.Log.Warn("the fraction of the peak is not shown: steps are faster than the measured peak of the device; other processes probably used the device while the peak was measured",
			"reached_gflops", math.Round(reached/1e9), "peak_gflops", math.Round(c.peak/1e9))
		c.peak = 0
	}
	return fraction, known
}

// etaText formats the remaining time, without fractions of a second.
func etaText(left time.Duration) string {
	if left < time.Minute-time.Second/2 {
		return fmt.Sprintf("%.0f s", left.Seconds())
	}
	return show.Duration(left)
}

// sharesOf formats the numbers of samples of the ranks, such as "96/64/48". For many ranks, it states the minimum and
// the maximum.
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
