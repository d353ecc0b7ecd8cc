package observe

import (
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Timed is an observer that passes each step on once the times of all ranks in this step are known. The receivers
// therefore never add up times of different steps. Timed passes all other calls on at once.
type Timed struct {
	Observers
	records *Records
	step    train.StepRecord // copy of the last step
	waiting bool             // step is not passed on yet
}

// StepDone implements [train.Observer]. It allocates no memory.
func (o *Timed) StepDone(r *train.StepRecord) {
	ranks, shares, reductions := o.step.Ranks[:0], o.step.Shares[:0], o.step.Reductions[:0]
	o.step, o.waiting = *r, true
	o.step.Ranks, o.step.Shares = append(ranks, r.Ranks...), append(shares, r.Shares...)
	o.step.Reductions, o.step.Norms = append(reductions, r.Reductions...), nil
}

// Known implements train.Options.Timed.
func (o *Timed) Known(times []replica.StepTimes) {
	if !o.waiting || len(times) != len(o.step.Ranks) {
		return
	}
	o.waiting = false
	for rank := range times {
		o.step.Ranks[rank].Times = times[rank]
	}
	o.Observers.StepDone(&o.step)
}

// End passes the last step on without the times of other ranks, which remained unknown because a rank was lost: only
// this rank gets a record.
func (o *Timed) End() {
	if o == nil || !o.waiting {
		return
	}
	o.waiting = false
	o.step.Ranks = o.step.Ranks[:1] // records are those of rank 0
	o.records.StepDone(&o.step)
}

// Saving implements [train.Observer].
func (o *Timed) Saving() {
	o.End() // after the loss of a rank
	o.Observers.Saving()
}

// RolledBack implements train.Observer. A step that the run repeats is not passed on.
func (o *Timed) RolledBack(step int64) {
	o.waiting = o.waiting && o.step.Step <= step
	o.Observers.RolledBack(step)
}
