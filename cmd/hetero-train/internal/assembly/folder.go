package assembly

import "github.com/hetero-train/hetero-train/engine/experiment"

// RunOptions returns the folders of the run, and the settings that an earlier run in that folder must have in common
// with it.
func (r *Run) RunOptions() experiment.Options {
	e, t := r.Cfg.Experiment, r.Cfg.Train
	epochs := t.Epochs
	if r.Data != nil { // with data.fallback the run may have fewer epochs
		epochs = r.Epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: r.Named(), LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs), Length: r.Length(), Compare: r.compare}
}
