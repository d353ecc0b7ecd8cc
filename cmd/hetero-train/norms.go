package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// normsFile holds the norms of single parameters, one measured step a line.
const normsFile = "norms.jsonl"

// norms is the observer that writes it.
type norms struct {
	job    *job
	path   string
	file   *os.File
	failed bool // to write, and it was said
	line   normsLine
}

// normsLine is a line of the file.
type normsLine struct {
	Step   int64                `json:"step"`
	Rate   experiment.Number    `json:"lr"`
	Params map[string]normsPart `json:"parameters"`
}

type normsPart struct {
	Gradient experiment.Number `json:"gradient"`
	Weight   experiment.Number `json:"weight"`
	Update   experiment.Number `json:"update"`
}

// openNorms opens the file behind the steps of the checkpoint that the run goes on from.
func (j *job) openNorms(resume *checkpoint.State) (*norms, error) {
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	n := &norms{job: j, path: filepath.Join(j.run.LogDir(), normsFile), line: normsLine{Params: map[string]normsPart{}}}
	var err error
	if n.file, err = openLines(n.path, kept); err != nil {
		return nil, fmt.Errorf("norms of parameters: %w", err)
	}
	j.later(func() error { return n.file.Close() })
	return n, nil
}

// StepDone implements train.Observer.
func (n *norms) StepDone(r *train.StepRecord) {
	if r.Norms == nil {
		return
	}
	n.line.Step, n.line.Rate = r.Step, experiment.Number(r.Rate)
	for _, p := range r.Norms {
		n.line.Params[p.Name] = normsPart{experiment.Number(p.Gradient), experiment.Number(p.Weight), experiment.Number(p.Update)}
	}
	text, err := json.Marshal(n.line)
	if err == nil {
		_, err = n.file.Write(append(text, '\n'))
	}
	n.tell(err)
}

// tell warns once until writing succeeds again.
func (n *norms) tell(err error) {
	if err != nil && !n.failed {
		n.job.opts.log.Warn("norms of parameters are not written", "error", err)
	}
	n.failed = err != nil
}

// RolledBack implements train.Observer: lines of steps that come again go.
func (n *norms) RolledBack(step int64) {
	file, err := openLines(n.path, step)
	if err == nil {
		err = n.file.Close()
		n.file = file
	}
	n.tell(err)
}

// EvalDone implements train.Observer.
func (*norms) EvalDone(train.Evaluation) {}

// Saving implements train.Observer: a run that resumes from the checkpoint has the lines of every step before it.
func (n *norms) Saving() { n.tell(n.file.Sync()) }

// Saved implements train.Observer.
func (*norms) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements train.Observer.
func (*norms) Warn(error) {}
