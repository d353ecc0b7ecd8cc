package observe

import (
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// valuesOf returns the metrics of a step that have the kind telemetry.Number. It allocates no memory.
func valuesOf(r *train.StepRecord) (v telemetry.Values) {
	score := r.Score()
	v[telemetry.Loss], v[telemetry.Accuracy] = score.Loss, score.Top1
	v[telemetry.LearningRate] = r.Rate
	v[telemetry.GradNorm] = r.GradNorm
	v[telemetry.LossScale] = r.Scale
	return v
}
