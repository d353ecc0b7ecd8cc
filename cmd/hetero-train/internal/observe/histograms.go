package observe

import (
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/profiler/trace"
)

// histograms adds histograms of weights and gradients to TensorBoard's event files.
type histograms struct {
	run    *assembly.Run
	every  int64 // number of steps between histograms; 0: no histograms
	counts *trace.Histogram
}

func newHistograms(a *assembly.Run) histograms {
	return histograms{run: a, every: int64(a.Process.Cfg.Profile.Histograms), counts: trace.NewHistogram()}
}

// add adds the histograms of a step if they are due. The weights are those after the step. The gradients are those of
// the mean loss, before clipping. Reading all parameters from the device takes time, which counts as a pause before the
// next step.
func (h *histograms) add(out *trace.Board, step int64, at time.Time) {
	if h.every == 0 || step%h.every != 0 {
		return
	}
	put := func(tag string, values []float32, factor float64) {
		h.counts.Reset()
		h.counts.Add(values, factor)
		out.Histogram(step, at, tag, h.counts)
	}
	replica := h.run.Replica
	err := replica.EachWeight(func(name string, values []float32) { put("weights/"+name, values, 1) })
	if err == nil {
		err = replica.EachGradient(func(name string, values []float32, factor float64) {
			put("gradients/"+name, values,
				factor)
		})
	}
	if err != nil {
		h.every = 0
		h.run.Process.Opts.LogOf(logs.ComponentProfiler).Warn("there are no further histograms of parameters", "error",
			err)
	}
}
