package observe

import (
	"context"
	"encoding/json"
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

// TrainedTime returns the training time of the first steps of a run, according to the records of rank 0 in the folder
// of logs, and the number of the last of these steps that has a record. Each step after this one counts with its time.
// It returns 0 and 0 if the time is unknown.
func TrainedTime(ctx context.Context, logs string, steps int64) (took time.Duration, recorded int64, err error) {
	var last runtime.Record
	_, err = runtime.EachMetric(ctx, filepath.Join(logs, runtime.FileName(0)), func(r *runtime.Record) {
		if r.Iteration <= steps && r.TrainingTime > 0 {
			last.Iteration, last.StepTime, last.TrainingTime = r.Iteration, r.StepTime, r.TrainingTime
		}
	})
	if err != nil || last.TrainingTime == 0 {
		return 0, 0, err
	}
	return last.TrainingTime + time.Duration(steps-last.Iteration)*last.StepTime, last.Iteration, nil
}
