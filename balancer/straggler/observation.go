package straggler

import (
	"math"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Observation contains the measurements of one rank in a window, as means over the steps of the window.
type Observation struct {
	// Seconds is the rank's own compute time per step, without waiting for other ranks. It consists of data, forward
	// and backward, and of the optimizer if the curve includes it. NaN or 0: the rank had no samples or no measurement.
	Seconds float64
	Samples int     // samples of the rank in a step; 0: unknown, whole steps are compared
	Data    float64 // part of Seconds, waiting for data; NaN: unknown

	// Expected is the time of the rank's own curve at its share, and ExpectedError its standard error; NaN: no curve
	// yet. The curve must come from before this window, when the rank was healthy. References keeps such curves.
	Expected, ExpectedError float64

	// Link is the time of transfers on this rank's own links, in s per step, without waits for slower ranks; NaN:
	// unknown. The time of a whole all-reduce, which is equal on all ranks, gives no information about one link.
	Link float64

	Health telemetry.Summary // sensors of the rank
}

// comparable reports whether the rank has a measurement and a curve.
func (o *Observation) comparable() bool {
	return measured(o.Seconds) && measured(o.Expected) && o.ExpectedError >= 0 && !math.IsInf(o.ExpectedError, 1)
}
