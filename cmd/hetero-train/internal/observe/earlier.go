package observe

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// BestEvaluation returns the best loss of the evaluations up to a step, according to the events in the folder of logs.
// It returns nil if it is unknown.
func BestEvaluation(logs string, step int64) (best *checkpoint.Best) {
	each := func(line []byte) error {
		var e runtime.Event
		if json.Unmarshal(line, &e) != nil || e.Step > step || e.Evaluation == nil {
			return nil
		}
		if v := e.Evaluation; v.Best && v.Loss != nil {
			best = &checkpoint.Best{Metric: "loss", Value: checkpoint.Float(*v.Loss), Step: e.Step}
		}
		return nil
	}
	_ = regular.EachLine(filepath.Join(logs, runtime.EventsFile), each) // without events, no result is known
	return best
}

// Trained is the training time of some steps of earlier processes of a run.
type Trained struct {
	Steps     int64 // number of steps that Time covers
	Time      time.Duration
	Estimated int64 // number of the last of these steps, which have no record
}

// TrainedTime returns the training time of the last steps up to step, according to the records of rank 0 in the folder
// of logs. It assumes that steps after the last record take the time of that record. Steps is 0 if the time is unknown.
func TrainedTime(ctx context.Context, logs string, step int64) (Trained, error) {
	var first, last runtime.Record
	_, err := runtime.EachMetric(ctx, filepath.Join(logs, runtime.FileName(0)), func(r *runtime.Record) {
		if r.Iteration > step || r.TrainingTime <= 0 || r.StepTime <= 0 {
			return
		}
		if last.Iteration == 0 || r.TrainingTime < last.TrainingTime { // the training time restarted at 0
			first.Iteration, first.StepTime, first.TrainingTime = r.Iteration, r.StepTime, r.TrainingTime
		}
		last.Iteration, last.StepTime, last.TrainingTime = r.Iteration, r.StepTime, r.TrainingTime
	})
	if err != nil || last.Iteration == 0 {
		return Trained{}, err
	}
	t := Trained{Estimated: step - last.Iteration}
	t.Time = last.TrainingTime + time.Duration(t.Estimated)*last.StepTime
	// The first record contains the mean time of the steps since the training time started at 0.
	t.Steps = step - first.Iteration + int64(math.Round(first.TrainingTime.Seconds()/first.StepTime.Seconds()))
	return t, nil
}
