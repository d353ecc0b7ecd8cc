package run

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// writeResult stores results/result.json.
func writeResult(j *assembly.Run, r train.Result, err error) error {
	out := experiment.Result{
		Steps: r.Steps, Epochs: int64(r.Epochs), FinalTrainLoss: experiment.Number(r.LastLoss), Exit: exit.Code(err),
		SamplesPerSecond: experiment.Number(show.PerSecond(r.Samples, r.TrainTime)), Program: version.Text(), Model: j.Cfg.Model.Name,
		Dataset: j.Data.Name, Device: j.Device.Info().Name, Precision: compute.TypesText(j.Types), BatchSize: int64(j.Cfg.Data.BatchSize), Ranks: max(j.Opts.Place.WorldSize, 1),
		SamplesSeen: r.SamplesSeen, SkippedSteps: r.Skipped, Unreadable: r.Replaced, Seconds: experiment.Number(time.Since(j.Started).Seconds()),
		OutOfTime: r.OutOfTime, GaveUp: r.GaveUp, Started: j.Started, Ended: time.Now(), BestEval: experiment.Number(show.NaN), BestEvalMetric: j.Report().Best().Key,
	}
	if r.Best != nil {
		out.BestEval, out.BestEvalMetric, out.BestEvalStep = experiment.Number(r.Best.Value), r.Best.Metric, r.Best.Step
	}
	if err != nil {
		out.Error = err.Error()
	}
	out.Notes = notesOf(j)
	if r.GaveUp != "" {
		out.Notes = append(out.Notes, "stopped early: "+r.GaveUp)
	}
	if info := j.Device.Info(); info.Modelled {
		out.Notes = append(out.Notes, "device "+info.Name+" does not compute, so losses and accuracies have no meaning")
	}
	newest := newest(j, r)
	if inside, relErr := filepath.Rel(j.Folder.Dir, newest); newest != "" && relErr == nil {
		out.Checkpoint = inside
	}
	return j.Folder.WriteResult(out)
}

// newest returns the path of the run's newest checkpoint, or of the checkpoint that it resumed from; "" without one.
func newest(j *assembly.Run, r train.Result) string {
	if r.Checkpoint == "" && j.Folder.Checkpoint != nil {
		return j.Folder.Checkpoint.Path
	}
	return r.Checkpoint
}

// notesOf returns notes that are needed to interpret the figures.
func notesOf(j *assembly.Run) []string {
	notes := slices.Clone(j.Lab.Notes)
	if j.Data.Note != "" {
		notes = append(notes, j.Data.Note)
	}
	return notes
}

// sayFinished logs that the run is complete.
func sayFinished(j *assembly.Run) error {
	if !j.Team.Leads() {
		return nil
	}
	f := j.Folder.Finished
	fmt.Fprintf(j.Opts.Env.Stdout, "%s is finished: %d steps, final training loss %.4f", j.Folder.Dir, f.Steps, float64(f.FinalTrainLoss))
	if !math.IsNaN(float64(f.BestEval)) {
		fmt.Fprintf(j.Opts.Env.Stdout, ", best %s %.4f at step %d", show.Foreign(f.BestEvalMetric), float64(f.BestEval), f.BestEvalStep)
	}
	fmt.Fprintln(j.Opts.Env.Stdout)
	for _, note := range f.Notes {
		fmt.Fprintln(j.Opts.Env.Stdout, "NOTE", show.Indented(note))
	}
	fmt.Fprintf(j.Opts.Env.Stdout, "%s\n", hintFinished(j))
	return nil
}

// hintFinished names the setting that ended the run, and how to continue.
func hintFinished(j *assembly.Run) string {
	const afresh = "--resume none starts a new run and renames the folder of the old run"
	longer := "a larger value continues this run"
	switch {
	case j.Falls() && j.Named():
		longer += fmt.Sprintf(", and schedule.name = %q then uses the learning rates of the longer run", j.Cfg.Schedule.Name)
	case j.Falls():
		longer = fmt.Sprintf("another value starts a new run, because schedule.name = %q depends on the length", j.Cfg.Schedule.Name)
	}
	return fmt.Sprintf("%s ended it: %s; %s", j.Length(), longer, afresh)
}
