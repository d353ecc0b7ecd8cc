package observe

import (
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// NormsFile is the name of the file with the norms of each parameter, one line per measured step.
const NormsFile = "norms.jsonl"

// norms is the observer that writes NormsFile.
type norms struct {
	*StepLines
	line NormsLine
}

// NormsLine is one line of NormsFile.
type NormsLine struct {
	Step   int64                `json:"step"`
	Rate   experiment.Number    `json:"lr"`
	Params map[string]normsPart `json:"parameters"`
}

type normsPart struct {
	Gradient experiment.Number `json:"gradient"`
	Weight   experiment.Number `json:"weight"`
	Update   experiment.Number `json:"update"`
}

// openNorms opens NormsFile and removes the lines of steps after the checkpoint from which the run resumes.
func openNorms(a *assembly.Run, resume *checkpoint.State) (*norms, error) {
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	file, err := OpenLines(a.Queue, "norms of parameters", filepath.Join(a.Folder.LogDir(), NormsFile), kept,
		a.Process.Opts.LogOf(logs.ComponentProfiler))
	if err != nil {
		return nil, err
	}
	file.Limit(LimitOfFile(a))
	a.Process.Later(file.Close)
	return &norms{StepLines: file, line: NormsLine{Params: map[string]normsPart{}}}, nil
}

// StepDone implements train.Observer.
func (n *norms) StepDone(r *train.StepRecord) {
	if r.Norms == nil {
		return
	}
	n.line.Step, n.line.Rate = r.Step, experiment.Number(r.Rate)
	for _, p := range r.Norms {
		n.line.Params[p.Name] = normsPart{experiment.Number(p.Gradient), experiment.Number(p.Weight),
			experiment.Number(p.Update)}
	}
	n.Add(n.line)
}

// RolledBack implements train.Observer. It removes the lines of repeated steps.
func (n *norms) RolledBack(step int64) { n.StepLines.RolledBack(step) }

// EvalDone implements train.Observer.
func (*norms) EvalDone(train.Evaluation) {}

// Saving implements [train.Observer]. It flushes the file, so that the lines of all steps before the checkpoint are on
// the disk.
func (n *norms) Saving() { n.sync() }

// Saved implements train.Observer.
func (*norms) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (*norms) Warn(error) {}
