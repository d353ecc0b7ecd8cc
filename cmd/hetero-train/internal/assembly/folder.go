package assembly

import "github.com/hetero-train/hetero-train/engine/experiment"

// RunOptions returns the options for opening the folder of the run.
func (r *Run) RunOptions() experiment.Options {
	e, t := r.Cfg.Experiment, r.Cfg.Train
	epochs := t.Epochs
	if r.Data != nil { // a run on fallback data can have fewer epochs
		epochs = r.Epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: r.Named(), LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs), Length: r.Length(), Compare: r.compare}
}
