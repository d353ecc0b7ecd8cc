package observe

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Records is the observer that writes the metrics files of all ranks, on rank 0. The records of other ranks come from
// their reports. Timed adds times to the steps before Records gets them.
type Records struct {
	run      *assembly.Run
	writers  []*runtime.Writer // writers by rank; none if profile.enabled is false
	interval int64
	record   runtime.Record
	thinning atomic.Bool // a job of the queue thins the files

	// Sums since the last record.
	took  time.Duration
	steps int64
}

// OpenRecords opens the metrics files, and removes the records of steps after the checkpoint from which the run
// resumes.
func OpenRecords(a *assembly.Run, resume *checkpoint.State) (*Records, error) {
	o := &Records{run: a, interval: int64(a.Process.Cfg.Profile.Interval)}
	if !a.Process.Cfg.Profile.Enabled {
		return o, nil
	}
	a.Process.Opts.LogOf(logs.ComponentProfiler).Info("Starting iteration profiling", "interval", o.interval, "folder",
		a.Folder.LogDir())
	for rank := 0; ; rank++ {
		path := filepath.Join(a.Folder.LogDir(), runtime.FileName(rank))
		gone := rank >= max(a.Process.Opts.Assignment.WorldSize, 1) // only an earlier process had this rank
		if gone && !parts.Exists(path) {
			return o, nil
		}
		w, err := openMetrics(a, path, resume)
		if err != nil {
			return nil, err
		}
		if !gone {
			o.writers = append(o.writers, w)
		}
	}
}

// openMetrics opens one metrics file.
func openMetrics(a *assembly.Run, path string, resume *checkpoint.State) (*runtime.Writer, error) {
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	w, repair, err := runtime.Open(path,
		runtime.Options{Fresh: resume == nil, Queue: a.Queue, OnFault: func(err error) {
			if err == nil {
				a.Process.Opts.LogOf(logs.ComponentProfiler).Info("metrics can be written again")
				return
			}
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn("metrics cannot be written and are kept in memory",
				"error",
				err)
		}})
	if err != nil {
		return nil, exit.With(exit.FolderCode(err), fmt.Errorf("metrics: %w", err))
	}
	a.Process.Later(func() error {
		err := w.Close()
		if n := w.Dropped(); n > 0 {
			err = errors.Join(err,
				fmt.Errorf("metrics: %d records were lost, because they could not be written to the disk", n))
		}
		return err
	})
	if text := repair.String(); text != "" {
		a.Process.Opts.LogOf(logs.ComponentProfiler).Warn("metrics file repaired", "file", path, "repair", text)
	}
	return w, exit.With(exit.IO, w.Truncate(kept))
}

// due reports whether a step gets a record. The last step of a run always gets a record, so that all outputs end with
// the same step.
func (o *Records) due(r *train.StepRecord) bool { return r.Step%o.interval == 0 || r.Step == r.Total }

// StepDone implements [train.Observer]. It allocates no memory.
func (o *Records) StepDone(r *train.StepRecord) {
	o.took, o.steps = o.took+r.Took, o.steps+1
	if !o.due(r) {
		return
	}
	o.record.StepTime, o.record.TrainingTime = o.took/time.Duration(o.steps), r.Trained.Time
	o.took, o.steps = 0, 0
	m := &o.record
	m.Epoch, m.Iteration, m.Timestamp, m.Skipped = int64(r.Epoch), r.Step, r.Time, !r.Updated
	m.Values = valuesOf(r)
	if o.run.Foreign != nil { // the other program reports only the loss
		m.Values[telemetry.Accuracy] = math.NaN()
	}
	for rank, w := range o.writers {
		own := &r.Ranks[rank]
		t := &own.Times
		m.Rank, m.BatchSize = rank, int64(own.Samples)
		m.DataLoading, m.Forward, m.Backward, m.Communication, m.Optimizer, m.CommunicationHidden = t.Data, t.Forward,
			t.Backward, t.Communication, t.Optimizer, t.Hidden
		m.Exchanges, m.Bytes, m.Buckets = t.Exchanges, own.Bytes, int64(own.Buckets)
		m.Telemetry = own.Telemetry
		w.Append(m)
	}
	o.limitFiles()
}

// limitFiles removes records of older steps from the files of all ranks when one file has exceeded its limit. It does
// not wait for the disk.
func (o *Records) limitFiles() {
	most := LimitOfFile(o.run)
	if most == 0 || o.thinning.Load() {
		return
	}
	for _, w := range o.writers {
		if w.Size() > most {
			o.thinning.Store(true)
			break
		}
	}
	if !o.thinning.Load() {
		return
	}
	o.run.Queue.Do(o.run.Folder.LogDir(), 0, func() { o.thin(most) })
}

// thin removes records of older steps from all files; all files keep the same steps. It runs as a job of the queue.
func (o *Records) thin(most int64) {
	defer o.thinning.Store(false)
	steps, err := o.writers[0].Steps()
	t := runtime.ThinningOf(steps)
	for _, w := range o.writers {
		if err == nil {
			o.run.Queue.Progress()
			err = w.Thin(t, o.run.Queue.Progress)
		}
	}
	log := o.run.Process.Opts.LogOf(logs.ComponentProfiler)
	if err != nil {
		log.Warn("the metrics files have reached their largest size and cannot be thinned out", "error", err)
		return
	}
	log.Info("The metrics files have reached their largest size; older steps now have fewer records",
		"key", "metrics.max_bytes", "file_bytes", most, "complete_from_step", max(t.Last-t.Window+1, 1))
}

// each calls do for every metrics file, and logs errors.
func (o *Records) each(do func(*runtime.Writer) error) {
	for _, w := range o.writers {
		if err := do(w); err != nil {
			o.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn("the metrics file cannot be updated", "error", err)
		}
	}
}

// RolledBack implements train.Observer. It removes the records of repeated steps.
func (o *Records) RolledBack(step int64) {
	o.took, o.steps = 0, 0
	o.each(func(w *runtime.Writer) error { return w.Truncate(step) })
}

// EvalDone implements train.Observer.
func (o *Records) EvalDone(train.Evaluation) {}

// Saving implements [train.Observer]. It flushes the records, so that the records of all steps before the checkpoint
// are on the disk. If that fails, OnFault reports it only once, not for every checkpoint.
func (o *Records) Saving() {
	for _, w := range o.writers {
		w.SyncSoon()
	}
}

// Saved implements train.Observer.
func (o *Records) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (o *Records) Warn(error) {}

// LimitOfFile returns the maximum size of a file of records in bytes, or 0 if there is no limit.
func LimitOfFile(a *assembly.Run) int64 {
	return int64(a.Process.Cfg.Metrics.FileBytes(a.Process.Opts.Assignment.WorldSize))
}
