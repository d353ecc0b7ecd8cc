package assembly

import "github.com/hetero-train/hetero-train/engine/experiment"

// RunOptions say where the run keeps its files and what an earlier run in that folder must agree with.
func (j *Run) RunOptions() experiment.Options {
	e, t := j.Cfg.Experiment, j.Cfg.Train
	epochs := t.Epochs
	if j.Data != nil { // a fallback may end the run sooner
		epochs = j.Epochs
	}
	return experiment.Options{OutputDir: e.OutputDir, Name: e.Name, Named: j.Named(), LogDir: e.LogDir, Resume: t.Resume, Steps: int64(t.Steps), Epochs: int64(epochs), Length: j.Length(), Compare: j.compare}
}
