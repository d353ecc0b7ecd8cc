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

// BestEvaluation returns the best loss of the evaluations up to a step, according to the events file in the folder
// logs. It returns nil if the best loss is unknown.
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
	_ = regular.EachLine(filepath.Join(logs, runtime.EventsFile), each) // if the file cannot be read, best remains nil
	return best
}

// Trained contains the training time of some steps that earlier processes of a run trained.
type Trained struct {
	Steps     int64 // number of steps that Time covers
	Time      time.Duration
	Estimated int64 // number of steps at the end of these that have no record
}

// TrainedTime returns the training time of the last steps up to step, according to the records of rank 0 in the folder
// logs. It assumes that steps after the last record took as long as the steps of that record. If no time is known,
// Steps is 0.
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
	// The first record has the mean time of the steps since the training time started at 0, which gives their number.
	t.Steps = step - first.Iteration + int64(math.Round(first.TrainingTime.Seconds()/first.StepTime.Seconds()))
	return t, nil
}
