package observe

import (
	"sync"

	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Timed is an observer that holds back each step until the times of all ranks in this step are known, and then forwards
// it. The receivers therefore never add up times of different steps. Timed forwards all other calls immediately.
type Timed struct {
	Observers
	records *Records

	mu      sync.Mutex       // a run may end while RolledBack is called
	step    train.StepRecord // copy of the last step
	waiting bool             // step has not been forwarded yet
}

// StepDone implements [train.Observer]. It allocates no memory.
func (o *Timed) StepDone(r *train.StepRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ranks, shares, reductions := o.step.Ranks[:0], o.step.Shares[:0], o.step.Reductions[:0]
	o.step, o.waiting = *r, true
	o.step.Ranks, o.step.Shares = append(ranks, r.Ranks...), append(shares, r.Shares...)
	o.step.Reductions, o.step.Norms = append(reductions, r.Reductions...), nil
}

// Known implements train.Options.Timed: it gets the times of all ranks in the last step.
func (o *Timed) Known(times []replica.StepTimes) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.waiting || len(times) != len(o.step.Ranks) {
		return
	}
	o.waiting = false
	for rank := range times {
		o.step.Ranks[rank].Times = times[rank]
	}
	o.Observers.StepDone(&o.step)
}

// End forwards the last step to the records, if its times are still unknown, for example because the run has lost a
// rank. No later report will complete the times of other ranks in this step. Three of these times are therefore those
// of the previous step; see train.RankStep.
func (o *Timed) End() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting {
		o.waiting = false
		o.records.StepDone(&o.step)
	}
}

// Saving implements [train.Observer].
func (o *Timed) Saving() {
	o.End()
	o.Observers.Saving()
}

// RolledBack implements train.Observer. It does not forward the waiting step, because the run will repeat this step. It
// releases the lock first, so that End need not wait for the removal of records, which may take long.
func (o *Timed) RolledBack(step int64) {
	o.mu.Lock()
	o.waiting = false
	o.mu.Unlock()
	o.Observers.RolledBack(step)
}
