package observe

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// mostCharts is the maximum number of ranks for which each rank has its own charts. With more ranks, the charts show
// only minimum and maximum.
const mostCharts = 64

// points computes the points of charts. Loss, accuracy, norm and learning rate are those of one step. Times and
// throughput are means since the previous point.
type points struct {
	interval int64
	values   []trace.Scalar // values of one point; the memory is reused
	ranks    []rankCharts   // names of charts, by rank; empty for more than mostCharts ranks

	// Sums since the last point.
	steps, samples int64
	took           time.Duration
	times          replica.StepTimes

	foreign bool // another program computes the steps, and may not report all values
	report  task.Report
	trained []task.Metric // those metrics of the task's report that are known for training steps
	tags    []string      // names of the charts of the metrics in trained
	rateTag string
	doneTag string // name of the chart of trained samples, in the unit of the throughput
}

// rankCharts contains the names of the charts of one rank.
type rankCharts struct{ share, own, utilization, memory string }

// The first mostDensePoints points have the interval that the user chose. By default, TensorBoard shows only 1,000
// points of a chart. A point of a run of two ranks has about 1 kB, so the first mostDensePoints points need 130 MB.
const mostDensePoints = 1 << 17

// stride returns the number of steps between two points near a step. After the first mostDensePoints points, it doubles
// whenever the number of steps has doubled, so that the files of a run of months stay small.
func stride(interval, step int64) int64 {
	return interval << bits.Len64(uint64((step-1)/interval/mostDensePoints))
}

// newPoints returns points for a run. The parameter interval is the number of steps between two points.
func newPoints(a *assembly.Run, interval int) *points {
	o := &points{interval: int64(interval), report: a.Report(), foreign: a.Foreign != nil}
	o.rateTag = "speed/" + strings.TrimSuffix(o.report.RateKey, "_sec") + "_second"
	o.doneTag = "progress/" + strings.TrimSuffix(o.report.RateKey, "_per_sec")
	for _, m := range o.report.Metrics {
		if !m.Evaluated && m.Key != task.Loss.Key { // the loss has a chart in any case
			o.trained, o.tags = append(o.trained, m), append(o.tags, "train/"+m.Key)
		}
	}
	if ranks := max(a.Process.Opts.Assignment.WorldSize, 1); ranks > 1 && ranks <= mostCharts {
		for rank := range ranks {
			name := func(what string) string { return fmt.Sprintf("%s/rank_%d", what, rank) }
			o.ranks = append(o.ranks, rankCharts{name("shares"), name("own_time_seconds"), name("utilization_percent"),
				name("memory_percent")})
		}
	}
	return o
}

// reset sets the sums for the next point to 0.
func (o *points) reset() {
	o.steps, o.samples, o.took, o.times = 0, 0, 0, replica.StepTimes{}
}

// evaluation returns the values of an evaluation with the names of their charts.
func (o *points) evaluation(e train.Evaluation) []trace.Scalar {
	values := []trace.Scalar{{Tag: "eval/loss", Value: e.Loss}}
	for _, m := range o.report.Metrics {
		values = append(values, trace.Scalar{Tag: "eval/" + m.Key, Value: m.Of(e.Score())})
	}
	return values
}

// add adds a step. If a point is due, it returns the values of the point, which are valid until the next call;
// otherwise it returns nil. It allocates no memory.
func (o *points) add(r *train.StepRecord) []trace.Scalar {
	o.steps++
	o.samples += int64(r.Samples)
	o.took += r.Took
	o.times.Data += r.Times.Data
	o.times.Forward += r.Times.Forward
	o.times.Backward += r.Times.Backward
	o.times.Communication += r.Times.Communication
	o.times.Optimizer += r.Times.Optimizer
	o.times.Hidden += r.Times.Hidden
	if r.Step%stride(o.interval, r.Step) != 0 && r.Step != 1 && r.Step != r.Total {
		return nil
	}
	o.addMetrics(r)
	o.values = append(o.values,
		trace.Scalar{Tag: "train/epoch", Value: float64(r.Epoch) + float64(r.EpochStep)/float64(r.EpochSteps)},
		trace.Scalar{Tag: o.rateTag, Value: show.PerSecond(o.samples*int64(o.report.Units), o.took)},
		trace.Scalar{Tag: "progress/steps", Value: float64(r.Trained.Steps)},
		trace.Scalar{Tag: o.doneTag, Value: float64(r.Trained.Samples * int64(o.report.Units))},
		trace.Scalar{Tag: tagOf(telemetry.TrainingTime), Value: r.Trained.Time.Seconds()})
	for _, part := range []struct {
		tag  string
		took time.Duration
	}{
		{"time_seconds/step", o.took}, {tagOf(telemetry.DataLoading), o.times.Data},
		{tagOf(telemetry.Forward), o.times.Forward}, {tagOf(telemetry.Backward), o.times.Backward},
		{tagOf(telemetry.Communication), o.times.Communication}, {tagOf(telemetry.CommunicationHidden), o.times.Hidden},
		{tagOf(telemetry.OptimizerTime), o.times.Optimizer},
		{"time_seconds/between", max(o.took-o.times.Total(), 0)},
	} {
		o.values = append(o.values, trace.Scalar{Tag: part.tag, Value: part.took.Seconds() / float64(o.steps)})
	}
	if o.foreign {
		o.values = slices.DeleteFunc(o.values, func(v trace.Scalar) bool {
			return math.IsNaN(v.Value) && v.Tag != tagOf(telemetry.Loss)
		})
	}
	o.addRanks(r.Ranks)
	o.reset()
	return o.values
}

func tagOf(m telemetry.Metric) string { return telemetry.Metrics[m].Tag }

// addMetrics adds the step metrics that are equal on all ranks. The metrics of the task follow the loss.
func (o *points) addMetrics(r *train.StepRecord) {
	o.values = o.values[:0]
	values, score := valuesOf(r), r.Score()
	for m := range telemetry.Metrics {
		d := &telemetry.Metrics[m]
		switch {
		case d.Tag == "":
			continue
		case d.Kind == telemetry.Flag:
			o.values = append(o.values, trace.Scalar{Tag: d.Tag, Value: float64(r.Skipped)})
		case d.Kind == telemetry.Number:
			o.values = append(o.values, trace.Scalar{Tag: d.Tag, Value: values[m]})
		}
		if telemetry.Metric(m) == telemetry.Loss {
			for i, m := range o.trained {
				o.values = append(o.values, trace.Scalar{Tag: o.tags[i], Value: m.Of(score)})
			}
		}
	}
}

// addRanks adds the values that differ between ranks.
func (o *points) addRanks(ranks []train.RankStep) {
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
