package observe

import (
	"fmt"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/memory"
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
