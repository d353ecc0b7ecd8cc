package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// records is the observer that writes the metrics file of a rank.
type records struct {
	job      *job
	writer   *runtime.Writer // nil where profile.enabled is false
	load     *system.Sampler
	interval int64
	record   runtime.Record
}

// openRecords opens the metrics file and drops what lies beyond the checkpoint that the run goes on from.
func (j *job) openRecords(resume *checkpoint.State) (*records, error) {
	o := &records{job: j, interval: int64(j.cfg.Profile.Interval)}
	if !j.cfg.Profile.Enabled {
		return o, nil
	}
	path := filepath.Join(j.run.LogDir(), runtime.FileName(0))
	if resume == nil {
		if err := setAside(path); err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("metrics: %w", err))
		}
	}
	w, repair, err := runtime.Open(path, runtime.Options{OnFault: func(err error) {
		if err == nil {
			j.opts.log.Info("metrics are written again")
			return
		}
		j.opts.log.Warn("metrics wait in memory", "error", err)
	}})
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("metrics: %w", err))
	}
	j.later(func() error {
		err := w.Close()
		if n := w.Dropped(); n > 0 {
			err = errors.Join(err, fmt.Errorf("metrics: %d records were lost because the disk took none", n))
		}
		return err
	})
	if text := repair.String(); text != "" {
		j.opts.log.Warn("metrics file repaired", "file", path, "repair", text)
	}
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	if err := w.Truncate(kept); err != nil {
		return nil, withCode(exitIO, fmt.Errorf("metrics: %w", err))
	}
	o.writer, o.load = w, system.NewSampler()
	j.later(o.load.Close)
	o.record = runtime.Record{LossScale: 1, Temperature: nan, Power: nan}
	return o, nil
}

// StepDone implements train.Observer. It allocates nothing.
func (o *records) StepDone(r *train.StepRecord) {
	if o.writer == nil || r.Step%o.interval != 0 {
		return
	}
	m, n := &o.record, float64(r.Samples)
	m.Epoch, m.Iteration, m.Timestamp, m.BatchSize = int64(r.Epoch), r.Step, r.Time, int64(r.Samples)
	m.Loss, m.Accuracy, m.LearningRate, m.GradNorm, m.Skipped = r.Loss/n, float64(r.Top1)/n, r.Rate, r.GradNorm, !r.Updated
	m.DataLoading, m.Forward, m.Backward, m.Optimizer = r.Times.Data, r.Times.Forward, r.Times.Backward, r.Times.Optimizer
	load := o.load.Sample()
	m.GPUUtilization, m.GPUMemoryPercent = load.CPUPercent, load.MemoryPercent
	o.writer.Append(m)
}

// RolledBack implements train.Observer: records of steps that come again go.
func (o *records) RolledBack(step int64) {
	if o.writer == nil {
		return
	}
	if err := o.writer.Truncate(step); err != nil {
		o.job.opts.log.Warn("metrics", "error", err)
	}
}

// EvalDone implements train.Observer.
func (o *records) EvalDone(train.Evaluation) {}

// Saving implements train.Observer: a run that resumes from the checkpoint has the records of every step before it.
func (o *records) Saving() {
	if o.writer == nil {
		return
	}
	if err := o.writer.Sync(); err != nil {
		o.job.opts.log.Warn("metrics", "error", err)
	}
}

// Saved implements train.Observer.
func (o *records) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (o *records) Warn(error) {}

// setAside renames the records of another run, which a shared experiment.log_dir may hold, to path.1, path.2, …
func setAside(path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil // nothing to lose; Open reports what keeps it from writing
	}
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(path, aside)
		} else if err != nil {
			return err
		}
	}
}
