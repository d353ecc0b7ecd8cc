package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// LimitOfFile returns the maximum size of a file of records in bytes, or 0 if there is no limit.
func LimitOfFile(a *assembly.Run) int64 {
	return int64(a.Process.Cfg.Metrics.FileBytes(a.Process.Opts.Assignment.WorldSize))
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

// Limit sets the maximum size of the file in bytes. 0 means no limit.
func (l *StepLines) Limit(bytes int64) *StepLines {
	l.disk.Do(l.path, 0, func() { l.most = bytes })
	return l
}

// thin removes lines of older steps; see [runtime.Thinning]. If possible, it keeps all evaluations and changes of
// shares.
func (l *StepLines) thin() error {
	most := l.most
	err := l.thinExcept(func(line steppedLine) bool { return line.first() || line.Evaluation != nil || line.Changed })
	if err == nil && l.size > most*3/4 { // the run has very many evaluations or changes of shares
		err = l.thinExcept(steppedLine.first)
	}
	// If many lines always stay, raise the limit, so that the file is not copied again for each further line.
	l.most = max(most, l.size+most/4)
	return err
}

// steppedLine contains the fields of a line that determine whether the line stays.
type steppedLine struct {
	Step                      int64
	Start, Length, Evaluation json.RawMessage
	Changed                   bool
}

// first reports whether a line contains the start or the length of a run. Readers always need these lines; for example,
// they cannot assign steps to ranks without the start of the process.
func (l steppedLine) first() bool { return l.Start != nil || l.Length != nil }

// thinExcept removes lines of older steps, but keeps those for which always returns true.
func (l *StepLines) thinExcept(always func(steppedLine) bool) error {
	parse := func(line []byte) (v steppedLine, ok bool) {
		return v, bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &v) == nil
	}
	var steps []int64
	err := regular.EachLine(l.path, func(line []byte) error {
		if v, ok := parse(line); ok && !always(v) {
			steps = append(steps, v.Step)
		}
		return nil
	})
	if err != nil {
		return err
	}
	keep := runtime.ThinningOf(steps).Keep()
	err = experiment.Replace(l.path, func(w io.Writer) error {
		return l.copy(w, func(line []byte) bool {
			v, ok := parse(line)
			return ok && (always(v) || keep(v.Step))
		})
	})
	if err != nil {
		err = fmt.Errorf("thin out %s: %w", l.path, err)
	}
	l.keep = math.MaxInt64
	return errors.Join(err, l.closeFile(), l.open())
}
