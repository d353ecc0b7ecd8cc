package rebalance

import (
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// ReportTo opens the decisions file and starts to send the state of the ranks to screen. If the run resumes from a
// checkpoint, ReportTo removes later decisions from the file.
func (b *Balancer) ReportTo(screen *observe.Console, resume *checkpoint.State) error {
	if b == nil || b.Policy == nil {
		return nil
	}
	kept := int64(0)
	if resume != nil {
		kept = resume.Step
	}
	a := b.run
	r := &balanceReport{run: a, policy: b.Policy, batch: b.options.Batch, waiting: &b.waiting, console: screen,
		dir: a.Folder.LogDir(), health: make([]straggler.Settled, len(b.known))}
	var err error
	if r.lines, err = observe.OpenLines(a.Queue, "decisions of the balancer", filepath.Join(r.dir, DecisionsFile), kept,
		a.Process.Opts.LogOf(logs.ComponentBalancer)); err != nil {
		return exit.With(exit.FolderCode(err), err)
	}
	r.lines.Limit(observe.LimitOfFile(a))
	a.Process.Later(r.lines.Close)
	b.report = r
	return nil
}

// Observer returns an observer that removes later decisions from the file when the run returns to a checkpoint. It does
// nothing in a run that writes no decisions.
func (b *Balancer) Observer() train.Observer { return rollBacks{b} }

// rollBacks removes the decisions of steps that the run will repeat.
type rollBacks struct{ balancing *Balancer }

// RolledBack implements [train.Observer].
func (o rollBacks) RolledBack(step int64) {
	if b := o.balancing; b != nil && b.report != nil {
		b.report.lines.RolledBack(step)
	}
}

// StepDone implements [train.Observer].
func (rollBacks) StepDone(*train.StepRecord) {}

// EvalDone implements [train.Observer].
func (rollBacks) EvalDone(train.Evaluation) {}

// Saving implements [train.Observer].
func (rollBacks) Saving() {}

// Saved implements [train.Observer].
func (rollBacks) Saved(checkpoint.Saved, time.Duration) {}

// Warn implements [train.Observer].
func (rollBacks) Warn(error) {}
