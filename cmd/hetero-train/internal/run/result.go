package run

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
)

// writeResult writes results/result.json.
func (tr *training) writeResult(r train.Result, err error) error {
	a := tr.run
	defer tr.disk.watch.Begin(filepath.Join(a.Folder.Dir, "results", "result.json"))()
	out := experiment.Result{
		Steps: r.Steps, Epochs: int64(r.Epochs), FinalTrainLoss: experiment.Number(r.LastLoss), Exit: exit.Code(err),
		SamplesPerSecond: experiment.Number(show.NaN), Program: version.Text(), Model: a.Process.Cfg.Model.Name,
		Dataset: a.Data.Name, Device: a.Rank.Device.Info().Name, Precision: compute.TypesText(a.Rank.Types),
		BatchSize: int64(a.Process.Cfg.Data.BatchSize), Ranks: max(a.Process.Opts.Assignment.WorldSize, 1),
		SamplesSeen: r.SamplesSeen, SkippedSteps: r.Skipped, Unreadable: r.Replaced,
		Seconds:   experiment.Number(time.Since(a.Process.Started).Seconds()),
		OutOfTime: r.OutOfTime, GaveUp: r.GaveUp, Started: a.Process.Started, Ended: time.Now(),
		BestEval:       experiment.Number(show.NaN),
		BestEvalMetric: a.Report().Named(a.Process.Cfg.Checkpoint.BestMetric).Key,
	}
	if r.Trained.Time > 0 {
		out.SamplesPerSecond = experiment.Number(show.PerSecond(r.Trained.Samples, r.Trained.Time))
	}
	if r.Best != nil {
		out.BestEval, out.BestEvalMetric, out.BestEvalStep = experiment.Number(r.Best.Value), r.Best.Metric, r.Best.Step
	}
	if e := r.LastEval; e != nil {
		out.LastEval = &experiment.ResultEvaluation{Step: e.Step, Samples: e.Samples, Loss: experiment.Number(e.Loss),
			Metrics: map[string]experiment.Number{}}
		for _, m := range a.Report().Metrics {
			out.LastEval.Metrics[m.Key] = experiment.Number(m.Of(e.Score()))
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	out.Notes = a.Notes()
	if note := tr.disk.note(); note != "" {
		out.Notes = append(out.Notes, note)
	}
	if a.Foreign != nil {
		out.Script = &a.Foreign.Script
	}
	if r.GaveUp != "" {
		out.EarlyStop = assembly.EarlyStop(&a.Process.Cfg.Train)
		out.Notes = append(out.Notes, "ended early: "+r.GaveUp)
	}
	newest := newest(a, r)
	if inside, relErr := filepath.Rel(a.Folder.Dir, newest); newest != "" && relErr == nil {
		out.Checkpoint = inside
	}
	return a.Folder.WriteResult(out)
}

// settleResult writes the result of a failed run, if the run has begun to train but has no result yet.
func (tr *training) settleResult(err error) {
	if err == nil || tr.run.Folder == nil || !tr.run.Folder.Owes() {
		return
	}
	result := train.Result{LastLoss: show.NaN}
	if c := tr.run.Folder.Checkpoint; c != nil {
		result.Steps, result.SamplesSeen, result.Best = c.State.Step, c.State.SamplesSeen, c.State.Best
	}
	if writeErr := tr.writeResult(result, err); writeErr != nil {
		tr.process.Opts.Log.Warn("the run failed, and its result file cannot be written", "error", writeErr)
	}
}

// newest returns the path of the newest checkpoint of the run, or of the checkpoint from which the run resumed. It
// returns "" if there is none.
func newest(a *assembly.Run, r train.Result) string {
	if r.Checkpoint == "" && a.Folder.Checkpoint != nil {
		return a.Folder.Checkpoint.Path
	}
	return r.Checkpoint
}

// endFinished ends this rank of a run that is already complete. On each machine, only the ranks that print return the
// error and the exit code of rank 0. These are the first rank, and those that the user started by hand. The launcher of
// each machine then exits with this code. The other ranks return nil, because a second failed rank could hide the
// message of the first one.
func (tr *training) endFinished() error {
	t := tr.rank.Team
	if t.Leads() {
		printFinished(tr.run)
		return faultOfFinished(tr.run.Folder)
	}
	if !t.Speaks() {
		return nil
	}
	return t.Finished.Err()
}

// faultOfFinished returns an error if the weights of a complete run are lost or cannot be read, otherwise nil.
func faultOfFinished(folder *experiment.Run) error {
	var system *checkpoint.IOError
	switch {
	case folder.Lost != nil:
		return fmt.Errorf("%s is finished, but its weights are lost: %w", folder.Dir, folder.Lost)
	case errors.As(folder.Unread, &system):
		return fmt.Errorf("%s is finished, but its checkpoints cannot be read: %w; give this user read access to the folder, or check its disk, and repeat the command",
			folder.Dir, folder.Unread)
	case folder.Unread != nil:
		return fmt.Errorf("%s is finished, but its checkpoints cannot be read: %w", folder.Dir, folder.Unread)
	}
	return nil
}

// printFinished prints that the run is already complete, and how to continue.
func printFinished(a *assembly.Run) {
	f := a.Folder.Finished
	fmt.Fprintf(a.Process.Opts.Env.Stdout, "%s is finished: %d steps, final training loss %s", a.Folder.Dir, f.Steps,
		show.Figure("%.4f", f.FinalTrainLoss))
	if !math.IsNaN(float64(f.BestEval)) {
		fmt.Fprintf(a.Process.Opts.Env.Stdout, ", best %s at step %d",
			task.TextOf(f.BestEvalMetric, float64(f.BestEval)), f.BestEvalStep)
	}
	fmt.Fprintln(a.Process.Opts.Env.Stdout)
	for _, note := range append(slices.Clone(a.Folder.Warnings), f.Notes...) {
		fmt.Fprintln(a.Process.Opts.Env.Stdout, "NOTE", show.Indented(note))
	}
	if missed := observe.MissedTimeline(a, f.Steps); missed != "" {
		fmt.Fprintln(a.Process.Opts.Env.Stdout, "NOTE", missed)
	}
	fmt.Fprintf(a.Process.Opts.Env.Stdout, "%s\n", hintFinished(a))
}

// hintFinished returns a text that names the setting that ended the run, and the ways to continue.
func hintFinished(a *assembly.Run) string {
	const afresh = "--resume none starts a new run and renames the folder of the old run"
	if a.Folder.Lost != nil {
		return afresh
	}
	early := a.Folder.Finished.GaveUp != ""
	longer := "a larger value continues this run"
	saved, err := checkpoint.List(a.Folder.CheckpointDir())
	switch {
	case a.Falls() && !a.Process.Named() && !early:
		longer = fmt.Sprintf("another value starts a new run, because the learning rates of schedule.name = %q depend on the length of the run",
			a.Process.Cfg.Schedule.Name)
	case len(saved) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)):
		longer = "a larger value starts again at the first step, because the run's checkpoints are missing"
	case a.Falls() && !early:
		longer += fmt.Sprintf(", and schedule.name = %q then uses the learning rates of the longer run",
			a.Process.Cfg.Schedule.Name)
	}
	return fmt.Sprintf("%s ended the run: %s; %s", endedBy(a), longer, afresh)
}

// endedBy returns the setting that ended the finished run. If the data has changed since then, it adds the number of
// steps of the run. An epoch may now have another number of steps.
func endedBy(a *assembly.Run) string {
	f, t, length := a.Folder.Finished, &a.Process.Cfg.Train, a.Length()
	switch {
	case f.GaveUp != "":
		return fmt.Sprintf("train.early_stop_patience = %d", t.EarlyStopPatience)
	case t.Steps == 0 && t.Epochs > 0 && a.Steps != f.Steps:
		return strings.TrimSuffix(length, ")") + fmt.Sprintf(" with the present data; %d when the run was trained)",
			f.Steps)
	}
	return length
}
