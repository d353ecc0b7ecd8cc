package train

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// EarlyStop ends a run whose evaluations no longer improve. The zero value never ends a run.
type EarlyStop struct {
	Metric string // metric of the evaluations: "top1", "top5", "f1", "macro_f1", "perplexity" or "loss"
	// number of consecutive evaluations without improvement after which the run ends; 0: no early stopping
	Patience int
	MinDelta float64 // smallest improvement that counts, in the metric's unit
}

// value returns the metric. The sign is chosen such that a larger value is better.
func (s EarlyStop) value(e Evaluation) float64 {
	switch s.Metric {
	case "loss":
		return -e.Loss
	case "top5":
		return e.Top5
	case "f1":
		return e.F1
	case "macro_f1":
		return e.MacroF1
	case "perplexity":
		return -math.Exp(e.Loss - e.SampleLoss)
	}
	return e.Top1
}

// stopping is the state of early stopping, which checkpoints store. The state is equal on all ranks, because all
// ranks have the same evaluations.
type stopping struct {
	Metric string           `json:"metric"`
	Best   checkpoint.Float `json:"best"`  // best metric so far, with the sign of EarlyStop.value
	Since  int              `json:"since"` // number of evaluations since the last improvement
	Any    bool             `json:"any"`   // true after the first evaluation
}

// note records an evaluation. If EarlyStop.Metric has changed since the last call, note first resets the state.
func (s *stopping) note(o EarlyStop, e Evaluation) {
	if o.Patience == 0 {
		return
	}
	if s.Metric != o.Metric {
		*s = stopping{Metric: o.Metric}
	}
	v := o.value(e)
	switch {
	case !math.IsNaN(v) && (!s.Any || v > float64(s.Best)+o.MinDelta):
		s.Best, s.Since, s.Any = checkpoint.Float(v), 0, true
	default:
		s.Since++
	}
}

// over reports whether early stopping ends the run.
func (s *stopping) over(o EarlyStop) bool {
	return o.Patience > 0 && s.Metric == o.Metric && s.Since >= o.Patience
}

// reason describes why early stopping ended the run.
func (s *stopping) reason(o EarlyStop) string {
	return fmt.Sprintf("%s has not improved by more than %.6g over its best value, %.6g, in %d evaluations", o.Metric,
		o.MinDelta, math.Abs(float64(s.Best)), s.Since)
}
