package program

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// writeResult stores results/result.json.
func (j *Run) writeResult(r train.Result, err error) error {
	out := experiment.Result{
		Steps: r.Steps, Epochs: int64(r.Epochs), FinalTrainLoss: experiment.Number(r.LastLoss), Exit: exit.Code(err),
		SamplesPerSecond: experiment.Number(show.PerSecond(r.Samples, r.TrainTime)), Program: version.Text(), Model: j.cfg.Model.Name,
		Dataset: j.data.Name, Device: j.device.Info().Name, Precision: typesText(j.types), BatchSize: int64(j.cfg.Data.BatchSize), Ranks: max(j.opts.place.WorldSize, 1),
		SamplesSeen: r.SamplesSeen, SkippedSteps: r.Skipped, Unreadable: r.Replaced, Seconds: experiment.Number(time.Since(j.started).Seconds()),
		OutOfTime: r.OutOfTime, GaveUp: r.GaveUp, Started: j.started, Ended: time.Now(), BestEval: experiment.Number(show.NaN), BestEvalMetric: "top1",
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
	if inside, relErr := filepath.Rel(j.folder.Dir, newest); newest != "" && relErr == nil {
		out.Checkpoint = inside
	}
	return j.folder.WriteResult(out)
}

// newest is the path of the newest checkpoint that the run has, or began with, "" without one.
func (j *Run) newest(r train.Result) string {
	if r.Checkpoint == "" && j.folder.Checkpoint != nil {
		return j.folder.Checkpoint.Path
	}
	return r.Checkpoint
}

// notes are what a reader of the figures must know.
func (j *Run) notes() []string {
	notes := slices.Clone(j.lab.notes)
	if j.data.Note != "" {
		notes = append(notes, j.data.Note)
	}
	return notes
}

// sayFinished tells that there is nothing left to do.
func (j *Run) sayFinished() error {
	if !j.team.leads() {
		return nil
	}
	f := j.folder.Finished
	fmt.Fprintf(j.opts.env.stdout, "%s is finished: %d steps, final training loss %.4f", j.folder.Dir, f.Steps, float64(f.FinalTrainLoss))
	if !math.IsNaN(float64(f.BestEval)) {
		fmt.Fprintf(j.opts.env.stdout, ", best %s %.4f at step %d", show.Foreign(f.BestEvalMetric), float64(f.BestEval), f.BestEvalStep)
	}
	fmt.Fprintln(j.opts.env.stdout)
	for _, note := range f.Notes {
		fmt.Fprintln(j.opts.env.stdout, "NOTE", show.Indented(note))
	}
	fmt.Fprintf(j.opts.env.stdout, "%s\n", j.hintFinished())
	return nil
}

// hintFinished names the setting that has ended the run, and the ways on.
func (j *Run) hintFinished() string {
	const afresh = "--resume none starts afresh, and the old run keeps its files"
	longer := "a larger value resumes from here"
	switch {
	case j.falls() && j.named():
		longer += fmt.Sprintf(", where the learning rate of schedule.name = %q rises to that of the longer run", j.cfg.Schedule.Name)
	case j.falls():
		longer = fmt.Sprintf("another value starts afresh, since schedule.name = %q depends on it", j.cfg.Schedule.Name)
	}
	return fmt.Sprintf("%s ended it: %s; %s", j.length(), longer, afresh)
}
