package observe

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/trace"
	"github.com/hetero-train/hetero-train/telemetry"
)

// BoardFolder is the name of the folder of TensorBoard's event files, in the folder of log files.
const BoardFolder = "tensorboard"

// mostCharts is the maximum number of ranks with charts of their own. For more ranks, the charts show only the minimum
// and the maximum.
const mostCharts = 64

// board is the observer that writes TensorBoard's event files. Loss, accuracy, norm and learning rate are values of one
// step. Times and throughput are means since the previous point.
type board struct {
	run      *assembly.Run
	out      *trace.Board
	interval int64
	values   []trace.Scalar // values of one point; the memory is reused
	ranks    []rankCharts   // names of charts, by rank; none for more than mostCharts ranks

	// Sums since the last point.
	steps, samples int64
	times          train.StepTimes

	report  task.Report
	trained []task.Metric // metrics of the report that training steps have
	tags    []string      // names of the charts of the metrics in trained
	rateTag string
}

// rankCharts contains the names of the charts of one rank.
type rankCharts struct{ share, own, utilization, memory string }

// openBoard creates the event files of this process. It removes the points of earlier processes that are later than the
// checkpoint.
func openBoard(a *assembly.Run, resume *checkpoint.State) (*board, error) {
	o := &board{run: a, interval: int64(a.Cfg.Profile.TensorBoardInterval), report: a.Report()}
	o.rateTag = "speed/" + strings.TrimSuffix(o.report.RateKey, "_sec") + "_second"
	for _, m := range o.report.Metrics {
		if !m.Evaluated {
			o.trained, o.tags = append(o.trained, m), append(o.tags, "train/"+m.Key)
		}
	}
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	var err error
	o.out, err = trace.OpenBoard(filepath.Join(a.Folder.LogDir(), BoardFolder), trace.BoardOptions{Fresh: resume == nil, Keep: kept, OnFault: func(err error) {
		if err == nil {
			a.Opts.LogOf(logs.ComponentProfiler).Info("TensorBoard events can be written again")
			return
		}
		a.Opts.LogOf(logs.ComponentProfiler).Warn("TensorBoard events cannot be written and are kept in memory", "error", err)
	}})
	if err != nil {
		return nil, err
	}
	a.Later(func() error {
		err := o.out.Close()
		if n := o.out.Dropped(); n > 0 {
			a.Opts.LogOf(logs.ComponentProfiler).Warn("TensorBoard events were lost, because they could not be written to the disk", "events", n)
		}
		return err
	})
	if ranks := max(a.Opts.Place.WorldSize, 1); ranks > 1 && ranks <= mostCharts {
		for rank := range ranks {
			name := func(what string) string { return fmt.Sprintf("%s/rank_%d", what, rank) }
			o.ranks = append(o.ranks, rankCharts{name("shares"), name("own_time_seconds"), name("utilization_percent"), name("memory_percent")})
		}
	}
	// The point has the number of the next step, so that another resume from the same checkpoint replaces the point.
	now := time.Now()
	o.out.Text(kept+1, now, "config", "    "+strings.ReplaceAll(string(a.Cfg.TOML()), "\n", "\n    "))
	o.out.Settings(kept+1, now, a.Folder.Name, boardSettings(a.Cfg, max(a.Opts.Place.WorldSize, 1)))
	return o, nil
}

// boardSettings returns the settings with which the HPARAMS tab compares runs: the settings that affect results or
// speed.
func boardSettings(cfg *config.Config, ranks int) []trace.Setting {
	settings := []trace.Setting{{Name: "ranks", Value: float64(ranks)}}
	for _, s := range cfg.Settings() {
		table, key, _ := strings.Cut(s.Key, ".")
		single := slices.Contains([]string{"experiment.seed", "data.dataset", "data.batch_size", "data.image_size", "train.precision", "train.grad_accumulation",
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
	o.steps++
	o.samples += int64(r.Samples)
	o.times.Data += r.Times.Data
	o.times.Forward += r.Times.Forward
	o.times.Backward += r.Times.Backward
	o.times.Communication += r.Times.Communication
	o.times.Optimizer += r.Times.Optimizer
	o.times.Hidden += r.Times.Hidden
	if r.Step%o.interval != 0 && r.Step != 1 && r.Step != r.Total {
		return
	}
	score := r.Score()
	o.values = append(o.values[:0], trace.Scalar{Tag: "train/loss", Value: score.Loss})
	for i, m := range o.trained {
		o.values = append(o.values, trace.Scalar{Tag: o.tags[i], Value: m.Of(score)})
	}
	o.values = append(o.values, trace.Scalar{Tag: "train/learning_rate", Value: r.Rate},
		trace.Scalar{Tag: "train/grad_norm", Value: r.GradNorm}, trace.Scalar{Tag: "train/skipped_steps", Value: float64(r.Skipped)},
		trace.Scalar{Tag: "train/epoch", Value: float64(r.Epoch) + float64(r.EpochStep)/float64(r.EpochSteps)},
		trace.Scalar{Tag: o.rateTag, Value: show.PerSecond(o.samples*int64(o.report.Units), o.times.Total())})
	for _, part := range []struct {
		tag  string
		took time.Duration
	}{
		{"time_seconds/step", o.times.Total()}, {"time_seconds/data", o.times.Data}, {"time_seconds/forward", o.times.Forward}, {"time_seconds/backward", o.times.Backward},
		{"time_seconds/communication", o.times.Communication}, {"time_seconds/communication_hidden", o.times.Hidden}, {"time_seconds/optimizer", o.times.Optimizer},
	} {
		o.values = append(o.values, trace.Scalar{Tag: part.tag, Value: part.took.Seconds() / float64(o.steps)})
	}
	o.addRanks(r.Ranks)
	o.out.Scalars(r.Step, r.Time, o.values)
	o.steps, o.samples, o.times = 0, 0, train.StepTimes{}
}

// addRanks adds the values that differ between ranks.
func (o *board) addRanks(ranks []train.RankStep) {
	known := func(tag string, v float64) {
		if !math.IsNaN(v) {
			o.values = append(o.values, trace.Scalar{Tag: tag, Value: v})
		}
	}
	slowest, fastest := time.Duration(0), time.Duration(math.MaxInt64)
	for i := range ranks {
		r := &ranks[i]
		if own := r.Compute(); r.Samples > 0 {
			slowest, fastest = max(slowest, own), min(fastest, own)
		}
		if i < len(o.ranks) {
			known(o.ranks[i].share, float64(r.Samples))
			known(o.ranks[i].own, r.Compute().Seconds())
			known(o.ranks[i].utilization, r.Telemetry[telemetry.Utilization])
			known(o.ranks[i].memory, r.Telemetry[telemetry.Memory])
		}
	}
	if len(ranks) > 1 && slowest > 0 {
		known("ranks/imbalance", float64(slowest-fastest)/float64(slowest))
		known("ranks/own_time_seconds_max", slowest.Seconds())
		known("ranks/own_time_seconds_min", fastest.Seconds())
	} else if len(ranks) == 1 {
		known("device/utilization_percent", ranks[0].Telemetry[telemetry.Utilization])
		known("device/memory_percent", ranks[0].Telemetry[telemetry.Memory])
	}
}

// EvalDone implements train.Observer.
func (o *board) EvalDone(e train.Evaluation) {
	values := []trace.Scalar{{Tag: "eval/loss", Value: e.Loss}}
	for _, m := range o.report.Metrics {
		values = append(values, trace.Scalar{Tag: "eval/" + m.Key, Value: m.Of(e.Score())})
	}
	o.out.Scalars(e.Step, time.Now(), values)
}

// RolledBack implements train.Observer. It removes the points of repeated steps.
func (o *board) RolledBack(step int64) {
	o.steps, o.samples, o.times = 0, 0, train.StepTimes{}
	if err := o.out.Restart(step); err != nil {
		o.run.Opts.LogOf(logs.ComponentProfiler).Warn("the TensorBoard events of repeated steps cannot be removed", "error", err)
	}
}

// Saving implements [train.Observer]. It flushes the points, so that the checkpoint never has a step without its point.
// OnFault reports a failure once.
func (o *board) Saving() { o.out.Sync() }

// Saved implements train.Observer.
func (o *board) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (o *board) Warn(error) {}
