package program

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// writeResult stores results/result.json.
func (j *job) writeResult(r train.Result, err error) error {
	out := experiment.Result{
		Steps: r.Steps, Epochs: int64(r.Epochs), FinalTrainLoss: experiment.Number(r.LastLoss), Exit: exitCode(err),
		SamplesPerSecond: experiment.Number(perSecond(r.Samples, r.TrainTime)), Program: versionText(), Model: j.cfg.Model.Name,
		Dataset: j.data.name, Device: j.device.Info().Name, Precision: typesText(j.types), BatchSize: int64(j.cfg.Data.BatchSize), Ranks: max(j.opts.place.WorldSize, 1),
		SamplesSeen: r.SamplesSeen, SkippedSteps: r.Skipped, Unreadable: r.Replaced, Seconds: experiment.Number(time.Since(j.started).Seconds()),
		OutOfTime: r.OutOfTime, GaveUp: r.GaveUp, Started: j.started, Ended: time.Now(), BestEval: experiment.Number(nan), BestEvalMetric: "top1",
	}
	if r.Best != nil {
		out.BestEval, out.BestEvalMetric, out.BestEvalStep = experiment.Number(r.Best.Value), r.Best.Metric, r.Best.Step
	}
	if err != nil {
		out.Error = err.Error()
	}
	out.Notes = j.notes()
	if r.GaveUp != "" {
		out.Notes = append(out.Notes, "stopped early: "+r.GaveUp)
	}
	if info := j.device.Info(); info.Modelled {
		out.Notes = append(out.Notes, "device "+info.Name+" computes nothing: losses and accuracies mean nothing")
	}
	newest := j.newest(r)
	if inside, relErr := filepath.Rel(j.run.Dir, newest); newest != "" && relErr == nil {
		out.Checkpoint = inside
	}
	return j.run.WriteResult(out)
}

// newest is the path of the newest checkpoint that the run has, or began with, "" without one.
func (j *job) newest(r train.Result) string {
	if r.Checkpoint == "" && j.run.Checkpoint != nil {
		return j.run.Checkpoint.Path
	}
	return r.Checkpoint
}

// notes are what a reader of the figures must know.
func (j *job) notes() []string {
	notes := slices.Clone(j.lab.notes)
	if j.data.note != "" {
		notes = append(notes, j.data.note)
	}
	return notes
}

// sayFinished tells that there is nothing left to do.
func (j *job) sayFinished() error {
	if !j.team.leads() {
		return nil
	}
	f := j.run.Finished
	before, err := j.run.PreviousConfig()
	if err != nil {
		return withCode(exitUsage, err)
	}
	if old, err := config.Parse(filepath.Join(j.run.ConfigDir(), "resolved.toml"), []byte(before), j.opts.env.catalog); err == nil {
		for _, d := range config.Diff(old, j.cfg) {
			if d.Shapes {
				return usageError("%s is finished with another model: %s was %s, now %s; use another experiment.name, or --resume none, which moves it aside", j.run.Dir, d.Key, d.Old, d.New)
			}
			j.opts.log.Warn("setting changed since the run was finished", "key", d.Key, "was", d.Old, "now", d.New)
		}
	}
	fmt.Fprintf(j.opts.env.stdout, "%s is finished: %d steps, final training loss %.4f", j.run.Dir, f.Steps, float64(f.FinalTrainLoss))
	if !math.IsNaN(float64(f.BestEval)) {
		fmt.Fprintf(j.opts.env.stdout, ", best %s %.4f at step %d", f.BestEvalMetric, float64(f.BestEval), f.BestEvalStep)
	}
	fmt.Fprintln(j.opts.env.stdout)
	for _, note := range f.Notes {
		fmt.Fprintln(j.opts.env.stdout, "NOTE", note)
	}
	if kind := j.cfg.Device.Kind; kind != "auto" {
		fmt.Fprintf(j.opts.env.stdout, "nothing was left to do, so device %s was not tried\n", kind)
	}
	fmt.Fprintf(j.opts.env.stdout, "more epochs (--set train.epochs=N) go on from here; --resume none starts anew and keeps this run aside\n")
	return nil
}
