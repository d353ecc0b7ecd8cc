package train

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// EarlyStop ends a run that no longer becomes better. The zero value never does.
type EarlyStop struct {
	Metric   string  // of evaluations: "top1", "top5" or "loss"
	Patience int     // evaluations in a row without an improvement that end the run; 0: never
	MinDelta float64 // what is no more than this, in the metric's unit, is no improvement
}

// value of the metric, signed so that more is better.
func (s EarlyStop) value(e Evaluation) float64 {
	switch s.Metric {
	case "loss":
		return -e.Loss
	case "top5":
		return e.Top5
	}
	return e.Top1
}

// stopping is how far a run is from being given up. Checkpoints keep it; all ranks have the same, since all see the same evaluations.
type stopping struct {
	Metric string           `json:"metric"`
	Best   checkpoint.Float `json:"best"`  // signed as EarlyStop.value
	Since  int              `json:"since"` // evaluations without an improvement
	Any    bool             `json:"any"`   // there was an evaluation
}

// note takes an evaluation into account. One of another metric than before begins anew.
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

// over reports whether the run is given up.
func (s *stopping) over(o EarlyStop) bool {
	return o.Patience > 0 && s.Metric == o.Metric && s.Since >= o.Patience
}

// reason says why a run was given up.
func (s *stopping) reason(o EarlyStop) string {
	return fmt.Sprintf("no improvement of %s over %.6g by more than %.6g in %d evaluations", o.Metric, math.Abs(float64(s.Best)), o.MinDelta, s.Since)
}
