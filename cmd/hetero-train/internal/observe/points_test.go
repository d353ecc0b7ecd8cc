package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func stepRecord() *train.StepRecord {
	r := &train.StepRecord{Rate: 0.1, Skipped: 2, Step: 1, Epoch: 1, EpochStep: 1, EpochSteps: 2, Took: time.Second,
		Shares: []int{8}}
	r.GradNorm, r.Scale, r.Samples, r.Count, r.Sums.Loss = 3, 4, 8, 8, 16
	r.Ranks = []train.RankStep{{Sums: r.Sums, Telemetry: telemetry.Unknown()}}
	return r
}

// Event files must contain the metrics in this order.
func TestAPointHasAllMetricsOfTheRun(t *testing.T) {
	o := &points{interval: 1, rateTag: "speed/images_second", doneTag: "progress/images",
		trained: []task.Metric{task.Top1}, tags: []string{"train/top1"}}
	r := stepRecord()
	var names []string
	values := map[string]float64{}
	for _, v := range o.add(r) {
		names, values[v.Tag] = append(names, v.Tag), v.Value
	}
	want := []string{"train/loss", "train/top1", "train/learning_rate", "train/grad_norm", "train/skipped_steps",
		"train/epoch", "speed/images_second", "progress/steps", "progress/images",
		"progress/training_seconds", "time_seconds/step", "time_seconds/data", "time_seconds/forward",
		"time_seconds/backward", "time_seconds/communication",
		"time_seconds/communication_hidden", "time_seconds/optimizer", "time_seconds/between"}
	if !slices.Equal(names, want) {
		t.Errorf("got the charts\n%v\nwant\n%v", names, want)
	}
	for _, d := range telemetry.Metrics { // this finds metrics without a value in the charts
		if d.Tag != "" && !slices.Contains(names, d.Tag) {
			t.Errorf("%s: got no chart %s", d.Key, d.Tag)
		}
	}
	for tag, want := range map[string]float64{"train/loss": 2, "train/learning_rate": 0.1, "train/grad_norm": 3,
		"train/skipped_steps": 2, "train/epoch": 1.5, "time_seconds/step": 1} {
		if values[tag] != want {
			t.Errorf("%s: got %v, want %v", tag, values[tag], want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { o.add(r) }); n != 0 {
		t.Errorf("got %v allocations per point, want 0", n)
	}
}

// Each metric of kind Number must have a value. This finds metrics without a measurement.
func TestEachNumberHasAValue(t *testing.T) {
	r := stepRecord()
	r.Top1 = 4
	for m, v := range valuesOf(r) {
		if telemetry.Metrics[m].Kind == telemetry.Number && v == 0 {
			t.Errorf("%s: got 0, want a value of the step", telemetry.Metrics[m].Key)
		}
	}
}
