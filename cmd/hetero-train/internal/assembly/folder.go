package assembly

import "github.com/hetero-train/hetero-train/engine/experiment"

// RunOptions returns the folders of the run, and the settings that an earlier run in that folder must have in common
// with it.
func (j *Run) RunOptions() experiment.Options {
	e, t := j.Cfg.Experiment, j.Cfg.Train
	epochs := t.Epochs
	if j.Data != nil { // with data.fallback the run may have fewer epochs
		epochs = j.Epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: j.Named(), LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs), Length: j.Length(), Compare: j.compare}
}
