package analysis

import (
	"math"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// at returns the record of a step that ends at the time end. Both end and the rank's own time are in seconds.
func at(iteration int64, end, seconds float64) runtime.Record {
	r := runtime.Record{Iteration: iteration, BatchSize: 4, Forward: time.Duration(seconds * float64(time.Second)),
		Telemetry: telemetry.Sample{telemetry.Utilization: math.NaN()}}
	if end > 0 {
		r.Timestamp = time.UnixMicro(int64(1e6 * end))
	}
	return r
}

// took adds training times to a record, in seconds: that of the step, and that of the run so far.
func took(r runtime.Record, step, run float64) runtime.Record {
	r.StepTime, r.TrainingTime = time.Duration(step*float64(time.Second)), time.Duration(run*float64(time.Second))
	return r
}

func TestStepTimeIsWhatPassesBetweenEndsOfSteps(t *testing.T) {
	for name, c := range map[string]struct {
		records [][]runtime.Record
		want    []float64 // step times in seconds
		pauses  int
		partial int
	}{
		"everything between steps counts": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 10.5, 0.2)}}, []float64{0.2, 0.5},
			0, 0},
		"the slowest rank's first step": {[][]runtime.Record{{at(1, 10, 0.2)}, {at(1, 10, 0.3)}}, []float64{0.3}, 0,
			0},
		"a pause does not count": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 30, 0.2)}}, []float64{0.2, 0.2},
			1, 0},
		"a slow step is no pause": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 30, 19)}}, []float64{0.2, 20}, 0,
			0},
		"a clock set back": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 9, 0.25)}}, []float64{0.2, 0.25},
			0, 0},
		"records of every tenth step": {[][]runtime.Record{{at(10, 10, 0.2), at(20, 15, 0.2)}}, []float64{0.2, 0.5},
			0, 0},
		"the training loop's own times": {
			[][]runtime.Record{{took(at(1, 10, 0.2), 0.3, 0.3), took(at(2, 30, 0.2), 0.4, 0.7),
				took(at(3, 30.25, 0.2), 0.25, 0.95)}}, []float64{0.3, 0.4, 0.25}, 1, 0},
		"... of every tenth step": {
			[][]runtime.Record{{took(at(10, 10, 0.2), 0.3, 3), took(at(20, 15, 0.2), 0.4, 7)}}, []float64{0.3, 0.4}, 0,
			0},
		"... with a clock set back": {
			[][]runtime.Record{{took(at(1, 10, 0.2), 0.3, 0.3), took(at(2, 9, 0.2), 0.4, 0.7)}}, []float64{0.3, 0.4}, 0,
			0},
		"... slow steps after a resume": {
			[][]runtime.Record{{took(at(100, 10, 0.2), 0.1, 10), took(at(110, 20, 0.2), 1, 15.5)}},
			[]float64{0.1, 0.55}, 1, 0},
		"... fast steps after a resume": {
			[][]runtime.Record{{took(at(100, 10, 0.2), 0.1, 10), took(at(110, 11, 0.2), 0.001, 10.505)}},
			[]float64{0.1, 0.0505}, 0, 0},
		"... from a foreign checkpoint": {
			[][]runtime.Record{{took(at(1001, 10, 0.2), 0.3, 0.3), took(at(1002, 15, 0.2), 0.4, 0.7)}},
			[]float64{0.3, 0.4}, 1, 0},
		"... after an earlier version": {
			[][]runtime.Record{{at(1, 10, 0.2), took(at(2, 10.5, 0.2), 0.5, 0.5), took(at(3, 11, 0.2), 0.4, 0.9)}},
			[]float64{0.2, 0.5, 0.4}, 0, 0},
		"no clock": {[][]runtime.Record{{at(1, 0, 0.2), at(2, 0, 0.3)}}, []float64{0.2, 0.3}, 0,
			0},
		"a rank lacks a step": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 10.4, 0.2), at(3, 11, 0.2)},
			{at(1, 10, 0.2), at(3, 11, 0.2)}}, []float64{0.2, 0.5}, 0, 1},
		"a step comes twice": {[][]runtime.Record{{at(1, 10, 0.2), at(2, 10.3, 0.2), at(2, 10.4, 0.2)}},
			[]float64{0.2, 0.4}, 0, 0},
	} {
		steps, pauses, partial := align(c.records)
		if len(steps) != len(c.want) || pauses != c.pauses || partial != c.partial {
			t.Errorf("%s: got %+v, %d pauses, %d partial; want %v, %d, %d", name, steps, pauses, partial, c.want,
				c.pauses, c.partial)
			continue
		}
		elapsed, previous := 0.0, steps[0].Iteration-1
		if r := c.records[0][0]; r.StepTime > 0 && r.TrainingTime > r.StepTime {
			previous = 0 // the training time of the first record includes the steps before it
		}
		for i, step := range steps {
			elapsed += c.want[i] * float64(step.Iteration-previous)
			previous = step.Iteration
			if math.Abs(step.Seconds-c.want[i]) > 1e-6 || math.Abs(step.Elapsed-elapsed) > 1e-6 ||
				step.Samples != int64(4*len(c.records)) {
				t.Errorf("%s: step %d: got %+v, want %g s", name, i, step, c.want[i])
			}
		}
	}
}

func TestOwnComputeTimeHoldsNoWaiting(t *testing.T) {
	record := runtime.Record{Iteration: 1, BatchSize: 4, DataLoading: 1, Forward: 20, Backward: 300, Exchanges: 100,
		Communication: 4000, Optimizer: 50000}
	steps, _, _ := align([][]runtime.Record{{record}})
	if got, want := steps[0].Ranks[0].Compute, (221 * time.Nanosecond).Seconds(); got != want {
		t.Errorf("got %g s, want %g", got, want)
	}
}

func TestImbalance(t *testing.T) {
	rank := func(samples int64, seconds float64) RankStep { return RankStep{Samples: samples, Compute: seconds} }
	for name, c := range map[string]struct {
		ranks              []RankStep
		imbalance, waiting float64
	}{
		"equal":                      {[]RankStep{rank(1, 2), rank(1, 2)}, 0, 0},
		"one at half the time":       {[]RankStep{rank(1, 1), rank(1, 2)}, 0.5, 0.25},
		"three wait for one":         {[]RankStep{rank(1, 1), rank(1, 1), rank(1, 1), rank(1, 4)}, 0.75, 0.5625},
		"ranks without samples":      {[]RankStep{rank(1, 2), rank(0, 0), rank(1, 2)}, 0, 0},
		"one rank":                   {[]RankStep{rank(1, 2)}, unknown, unknown},
		"one rank left with samples": {[]RankStep{rank(1, 2), rank(0, 0)}, unknown, unknown},
		"no time measured at all":    {[]RankStep{rank(1, 0), rank(1, 0)}, unknown, unknown},
	} {
		got, wait := (&Step{Ranks: c.ranks}).imbalance()
		if !same(got, c.imbalance) || !same(wait, c.waiting) {
			t.Errorf("%s: got %g and %g, want %g and %g", name, got, wait, c.imbalance, c.waiting)
		}
	}
}

func same(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9 }

func TestWarmUpIsAFifthAndAtLeast30Steps(t *testing.T) {
	for _, c := range []struct{ total, set, want int64 }{{1000, -1, 200}, {1001, -1, 201}, {100, -1, 30}, {20, -1, 30},
		{1000, 0, 0}, {1000, 7, 7}} {
		if got := WarmUp(c.total, c.set); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00012345: "0.0001234", 0.0123: "0.01230", 1.23: "1.230",
		99.996: "100.0", 1234.4: "1234", 123456: "123500",
		9999.6: "10000", -2.5: "-2.500", 1.5e-7: "1.500e-07", math.Inf(1): "-"} {
		if got := Digits(v); got != want {
			t.Errorf("%g: got %s, want %s", v, got, want)
		}
	}
	if got := Digits(unknown); got != "-" {
		t.Errorf("NaN: got %s", got)
	}
}

func TestTimeBetweenThePartsOfAStep(t *testing.T) {
	var sums rankTotal
	for _, r := range []runtime.Record{took(at(1, 0, 0.2), 0.3, 0.3), took(at(2, 0, 0.2), 0.4, 0.7),
		took(at(3, 0, 0.5), 0.4, 1.1), at(4, 0, 0.2)} {
		sums.sumUp(&r)
	}
	// A device has its own clock, so its time can exceed that of the host.
	if got := float64(sums.parts().Between); !same(got, (0.1+0.2+0+0)/4) {
		t.Errorf("got %g s, want 0.075 s", got)
	}
}

func TestAnEvaluationAfterTheLastRecordHasTheTimeOfTheLastRecord(t *testing.T) {
	trial := Trial{Curves: []Curve{{Key: lossCurve, Points: []TrialPoint{{7, 1, 2.5}, {14, 2, 2.4}}}}}
	trial.addPoint(Curve{Key: evalPrefix + "loss"}, 16, 2.3)
	if got := trial.curve(evalPrefix + "loss").Points[0]; got.Step != 16 || got.Seconds != 2 {
		t.Errorf("got %+v, want 2 s", got)
	}
}
