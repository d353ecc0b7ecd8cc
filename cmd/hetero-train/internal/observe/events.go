package observe

import (
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// events is the observer that writes the events file, which other programs read during the run.
type events struct {
	file    *StepLines
	report  task.Report
	counted bool  // true after the length of the run was written
	step    int64 // number of the last step
}

// openEvents opens the events file, and writes an event for the start of this process. It removes the events of steps
// after the checkpoint from which the run resumes.
func openEvents(a *assembly.Run, resume *checkpoint.State) (*events, error) {
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	path := filepath.Join(a.Folder.LogDir(), runtime.EventsFile)
	if resume == nil {
		kept = -1 // remove all lines, because they belong to another run
	}
	file, err := OpenLines(a.Queue, "events of the run", path, kept, a.Process.Opts.LogOf(logs.ComponentProfiler))
	if err != nil {
		return nil, err
	}
	file.Limit(LimitOfFile(a))
	a.Process.Later(file.Close)
	e := &events{file: file, report: a.Report(), step: max(kept, 0)}
	start := &runtime.StartEvent{Program: version.Text(), Model: a.Process.Cfg.Model.Name, Dataset: a.Data.Name,
		Policy: a.Process.Cfg.Balance.Policy,
		Ranks:  max(a.Process.Opts.Assignment.WorldSize, 1), BatchSize: a.Process.Cfg.Data.BatchSize,
		Precision: compute.TypesText(a.Rank.Types), Unit: e.report.Unit, Units: e.report.Units,
		BestMetric: e.report.Named(a.Process.Cfg.Checkpoint.BestMetric).Key, Notes: a.Notes()}
	for _, m := range e.report.Metrics {
		start.Metrics = append(start.Metrics, runtime.EventMetric{Key: m.Key, Title: m.Title, Percent: m.Percent})
	}
	file.Add(runtime.Event{Step: max(kept, 0), Time: time.Now(), Start: start})
	return e, nil
}

// judged writes an event with the bottleneck of a window of steps.
func (e *events) judged(step int64, v *runtime.BottleneckEvent) {
	e.file.Add(runtime.Event{Step: step, Time: time.Now(), Bottleneck: v})
}

// StepDone implements train.Observer.
func (e *events) StepDone(r *train.StepRecord) {
	e.step = r.Step
	if !e.counted {
		e.counted = true
		e.file.Add(runtime.Event{
			Step: r.Step, Time: r.Time, Length: &runtime.LengthEvent{Steps: r.Total, EpochSteps: r.EpochSteps}})
	}
}

// EvalDone implements train.Observer.
func (e *events) EvalDone(v train.Evaluation) {
	out := &runtime.EvaluationEvent{Samples: v.Samples, Loss: runtime.Known(v.Loss), Metrics: map[string]*float64{},
		Best: v.Best, Seconds: v.Took.Seconds()}
	for _, m := range e.report.Metrics {
		out.Metrics[m.Key] = runtime.Known(m.Of(v.Score()))
	}
	e.file.Add(runtime.Event{Step: v.Step, Time: time.Now(), Evaluation: out})
}

// RolledBack implements train.Observer. It removes the events of repeated steps.
func (e *events) RolledBack(step int64) {
	e.step = step
	e.file.RolledBack(step)
}

// Saving implements [train.Observer]. It flushes the file, so that all events before the checkpoint are on the disk.
func (e *events) Saving() { e.file.sync() }

// Saved implements train.Observer.
func (e *events) Saved(s checkpoint.Saved, took time.Duration) {
	e.file.Add(runtime.Event{Step: s.Step, Time: time.Now(), Checkpoint: &runtime.CheckpointEvent{
		Seconds: took.Seconds()}})
}

// Warn implements train.Observer.
func (e *events) Warn(error) {}
