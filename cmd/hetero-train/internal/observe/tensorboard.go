package observe

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// BoardFolder is the name of the folder of TensorBoard's event files, in the folder of log files.
const BoardFolder = "tensorboard"

// board is the observer that writes TensorBoard's event files.
type board struct {
	run *assembly.Run
	out *trace.Board
	*points
	parameters histograms
}

// openBoard creates the event files of this process. It removes points of earlier processes if they are later than the
// checkpoint from which the run resumes.
func openBoard(a *assembly.Run, resume *checkpoint.State) (*board, error) {
	o := &board{run: a, points: newPoints(a, a.Process.Cfg.Profile.TensorBoardInterval), parameters: newHistograms(a)}
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	var err error
	o.out, err = trace.OpenBoard(filepath.Join(a.Folder.LogDir(), BoardFolder),
		trace.BoardOptions{Fresh: resume == nil, Keep: kept, Queue: a.Queue, OnFault: func(err error) {
			if err == nil {
				a.Process.Opts.LogOf(logs.ComponentProfiler).Info("TensorBoard events can be written again")
				return
			}
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn(
				"TensorBoard events cannot be written and are kept in memory",
				"error", err)
		}})
	if err != nil {
		return nil, err
	}
	a.Process.Later(func() error {
		err := o.out.Close()
		if n := o.out.Dropped(); n > 0 {
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn(
				"TensorBoard events were lost, because they could not be written to the disk", "events", n)
		}
		return err
	})
	// The text and the settings get the number of the next step, so that another resume from the same checkpoint
	// replaces them.
	now := time.Now()
	o.out.Text(kept+1, now, "config", "    "+strings.ReplaceAll(a.SettingsTOML(a.Process.Cfg), "\n", "\n    "))
	o.out.Settings(kept+1, now, a.Folder.Name, boardSettings(a.Settings(), max(a.Process.Opts.Assignment.WorldSize, 1)))
	return o, nil
}

// boardSettings returns the settings that affect results or speed. TensorBoard's HPARAMS tab uses them to compare runs.
func boardSettings(all []config.Setting, ranks int) []trace.Setting {
	settings := []trace.Setting{{Name: "ranks", Value: float64(ranks)}}
	for _, s := range all {
		table, key, _ := strings.Cut(s.Key, ".")
		single := slices.Contains([]string{"experiment.seed", "data.dataset", "data.batch_size", "data.image_size",
			"train.precision", "train.grad_accumulation",
			"train.label_smoothing", "train.clip_norm", "balance.policy"}, s.Key)
		if !single && !slices.Contains([]string{"model", "optimizer", "schedule"}, table) {
			continue
		}
		var value any = s.Value
		if text, err := strconv.Unquote(s.Value); err == nil {
			value = text
		} else if number, err := strconv.ParseFloat(s.Value, 64); err == nil {
			value = number
		} else if on, err := strconv.ParseBool(s.Value); err == nil {
			value = on
		}
		settings = append(settings, trace.Setting{Name: table + "." + key, Value: value})
	}
	return settings
}

// StepDone implements [train.Observer]. It allocates no memory.
func (o *board) StepDone(r *train.StepRecord) {
	if values := o.add(r); values != nil {
		o.out.Scalars(r.Step, r.Time, values)
	}
	o.parameters.add(o.out, r.Step, r.Time)
}

// EvalDone implements train.Observer.
func (o *board) EvalDone(e train.Evaluation) {
	o.out.Scalars(e.Step, time.Now(), o.evaluation(e))
}

// RolledBack implements train.Observer. It removes the points of repeated steps.
func (o *board) RolledBack(step int64) {
	o.reset()
	if err := o.out.Restart(step); err != nil {
		o.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn(
			"the TensorBoard events of repeated steps cannot be removed", "error", err)
	}
}

// Saving implements [train.Observer]. It flushes the points, so that the points of all steps before the checkpoint are
// on the disk. If that fails, OnFault reports it once.
func (o *board) Saving() { o.out.SyncSoon() }

// Saved implements train.Observer.
func (o *board) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (o *board) Warn(error) {}
