package assembly

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// RunOptions returns the options for opening the folder of the run.
func (r *Run) RunOptions() experiment.Options {
	e, t := r.Process.Cfg.Experiment, r.Process.Cfg.Train
	epochs := t.Epochs
	if r.Data != nil { // a run on fallback data can have fewer epochs
		epochs = r.Epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: r.Process.Named() ||
		len(r.Process.Opts.Allow) > 0, LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs),
		Length: r.Length(), EarlyStop: EarlyStop(&t), Compare: r.compare}
}

// EarlyStop formats the settings of early stopping. It returns "" if early stopping is off.
func EarlyStop(t *config.Train) string {
	if t.EarlyStopPatience == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %d evaluations, %v", t.EarlyStopMetric, t.EarlyStopPatience, t.EarlyStopMinDelta)
}
