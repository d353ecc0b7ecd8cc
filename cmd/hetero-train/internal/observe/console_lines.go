package observe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// Begin prints the description of the run.
func (c *Console) Begin(resume *checkpoint.State) {
	a := c.run
	if !a.Rank.Team.Leads() {
		c.logJoined()
	}
	c.logDevice()
	c.logModel(resume)
	c.logData()
	c.logRecipe()
	c.note()
	if resume != nil {
		c.Log(fmt.Sprintf("resuming after step %d from %s", resume.Step, a.Folder.Checkpoint.Path), "resuming", "step",
			resume.Step, "checkpoint", a.Folder.Checkpoint.Path)
	}
	if c.bars != nil && a.Steps > 0 {
		left := func(decor.Statistics) string {
			if left := time.Duration(c.left.Load()); left > 0 {
				return " left " + etaText(left)
			}
			return ""
		}
		c.bar = c.bars.AddBar(a.Steps, mpb.PrependDecorators(decor.CountersNoUnit("step %d/%d")),
			mpb.AppendDecorators(decor.Percentage(), decor.Any(left)))
		if resume != nil {
			c.bar.SetCurrent(resume.Step)
		}
	}
}

// logJoined prints which ranks this machine has, and where rank 0 writes the output of the run. Rank 0 does not call
// it.
func (c *Console) logJoined() {
	t := c.run.Rank.Team
	here, host := []int{}, t.Group.Members()[t.Place.Rank].Host
	for _, m := range t.Group.Members() {
		if m.Host == host && m.Rank >= t.Place.Rank {
			here = append(here, m.Rank)
		}
	}
	switch n := t.Place.LocalWorldSize; {
	case t.Place.OwnOutput: // every rank of this machine prints such a line
		here = here[:1]
	case n > 0: // limit to this node, because a test may start several nodes on one machine
		here = here[:min(n, len(here))]
	}
	c.Log(fmt.Sprintf("joined: %s of %d; rank 0 at %s writes records and checkpoints",
		rendezvous.RankList(here, len(here)), t.Place.WorldSize, t.Place.Master()),
		"joined", "ranks", here, "world_size", t.Place.WorldSize, "rank_0", t.Place.Master())
}

func (c *Console) logDevice() {
	a := c.run
	info := a.Rank.Device.Info()
	threads := show.Count(info.Threads, "thread")
	attrs := []any{"device", info.Name, "name", info.Model, "isa", info.ISA, "threads", info.Threads, "memory_bytes",
		info.MemoryBytes}
	if limit := a.Rank.LimitOfThreads(); limit != "" {
		threads += " (" + limit + ")"
		attrs = append(attrs, "threads_limited_by", limit)
	}
	line := fmt.Sprintf("device %s: %s, %s, %s, %.1f GiB", info.Name, info.Model, info.ISA, threads,
		show.GiB(info.MemoryBytes))
	if c.peak > 0 {
		line += fmt.Sprintf(", peak %.0f GFLOP/s in %v", c.peak/1e9, a.Rank.Precision)
		attrs = append(attrs, "peak_flops", c.peak)
	}
	c.Log(line, "device", attrs...)
}

func (c *Console) logModel(resume *checkpoint.State) {
	a, r, here := c.run, c.run.Replica, ""
	if a.Rank.Team != nil {
		here = " on this rank"
	}
	c.Log(fmt.Sprintf("model %s: %.2f million parameters, %.2f GFLOP a step%s, %v, %.2f GiB of device memory",
		a.Process.Cfg.Model.Name, float64(r.ParamCount())/1e6, float64(r.FLOPs())/1e9, here, a.Rank.Precision,
		show.GiB(r.PredictedBytes())),
		"model", "model", a.Process.Cfg.Model.Name, "parameters", r.ParamCount(), "frozen_parameters", r.FrozenCount(),
		"step_flops", r.FLOPs(), "precision", a.Rank.Precision.String(),
		"device_memory_bytes", r.PredictedBytes())
	if account := r.Account(); account.Limit.Bytes > 0 {
		over := ""
		if excess := account.HostBytes() - account.Limit.Bytes; excess > 0 {
			over = fmt.Sprintf("; the kernel reclaims program files, so an excess of %s is tolerated",
				memory.Size(excess))
		}
		c.Log(fmt.Sprintf("memory planned%s: %s of %s (%s)%s", here, memory.Size(account.HostBytes()),
			memory.Size(account.Limit.Bytes), account.Limit.Source, over),
			"memory", "planned_bytes", account.HostBytes(), "limit_bytes", account.Limit.Bytes, "limit_from",
			account.Limit.Source, "account", account)
	}
	if n := r.Recomputed(); n > 0 {
		c.Log(fmt.Sprintf("activation recomputation (train.recompute = %[2]q): the backward pass computes the activations of %[1]d layers again",
			n, a.Process.Cfg.Train.Recompute),
			"recompute", "layers", n, "recompute", a.Process.Cfg.Train.Recompute)
	}
	if n := r.FrozenCount(); n > 0 {
		fmt.Fprintf(c.out, "frozen parameters (not trained): %.2f million\n", float64(n)/1e6)
		if resume == nil && a.Process.Cfg.Model.InitFrom == "" && a.Rank.Team.Leads() {
			a.Process.Opts.Log.Warn("frozen parameters keep random values, because model.init_from is empty")
		}
	}
}

// logParts prints which part of the data set is used for evaluation. It prints nothing for data sets without parts.
func (c *Console) logParts() {
	origin, unused := c.run.Data.EvalFrom()
	if origin == "" {
		return
	}
	line := "data " + c.run.Data.Name + ": evaluation on " + origin
	if unused != "" {
		line += "; not used: " + unused
	}
	c.Log(line, "data parts", "evaluation", origin, "not_used", unused)
}

func (c *Console) logData() {
	defer c.logParts()
	a, cfg := c.run, c.run.Process.Cfg
	samples, evaluated := a.Data.Counts()
	line := fmt.Sprintf("data %s: %d training", a.Data.Name, samples)
	if a.Data.HasEval() {
		line += fmt.Sprintf(", %d evaluation", evaluated)
	}
	if t := a.Data.Tokens; t != nil {
		line += fmt.Sprintf(" samples of %d tokens, vocabulary %d | batch %d, %s per epoch%s", t.Length,
			t.Vocabulary, cfg.Data.BatchSize, show.Count(a.StepsPer, "step"), c.leftOver(samples))
		c.Log(line, "data", "dataset", a.Data.Name, "training_samples", samples, "evaluation_samples", evaluated,
			"sequence_length", t.Length, "vocabulary", t.Vocabulary,
			"batch_size_global", cfg.Data.BatchSize, "steps_per_epoch", a.StepsPer)
		if t.Note != "" {
			c.Log("data "+a.Data.Name+": "+t.Note, "data note", "note", t.Note)
		}
		return
	}
	classes, size, transforms := len(a.Data.Classes()), cfg.Data.ImageSize, parts.TransformTexts(cfg)
	line += fmt.Sprintf(" samples, %d classes | images %dx%d, %s | batch %d, %s per epoch%s", classes, size, size,
		strings.Join(transforms, ", "), cfg.Data.BatchSize, show.Count(a.StepsPer, "step"), c.leftOver(samples))
	c.Log(line, "data", "dataset", a.Data.Name, "training_samples", samples, "evaluation_samples", evaluated, "classes",
		classes, "image_size", size, "transforms", transforms,
		"batch_size_global", cfg.Data.BatchSize, "steps_per_epoch", a.StepsPer)
}

// leftOver describes the last batch of an epoch if it is smaller than the other batches. The text states the number of
// samples that the epoch leaves out, or the size of the last batch if the run uses it.
func (c *Console) leftOver(samples int) string {
	batch := int64(c.run.Process.Cfg.Data.BatchSize)
	switch n := int64(samples) - c.run.StepsPer*batch; {
	case n > 0:
		return fmt.Sprintf(", which leave out %s", show.Count(n, "other sample"))
	case n < 0:
		return fmt.Sprintf(", the last with %s", show.Count(n+batch, "sample"))
	}
	return ""
}

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

// note prints the testbed's conditions that a reader needs to interpret the numbers. It does not print a fallback of
// the data set, which OpenData has reported.
func (c *Console) note() {
	for _, note := range c.run.Lab.Notes {
		c.Log("NOTE "+note, "note", "text", note)
	}
}
