package replica

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/nn/random"
)

// enter prepares the pass of a micro-batch: the working copies of the parameters and the values that are fixed for the
// step, unless they were already prepared in this step. For a smaller micro-batch it also sets the shares.
func (r *Replica) enter(batch batchFacts, first bool) error {
	if r.sums != nil && r.smaller(batch) {
		if !first { // copies of the earlier shares may be in progress
			if err := r.stream.Sync(); err != nil {
				return err
			}
		}
		if err := r.sums.SetShares(r.shares.Within(batch.total)); err != nil {
			return err
		}
		r.partial = true
	}
	if batch.pass == r.ready {
		return nil
	}
	r.ready = batch.pass
	return r.begin(batch)
}

// begin prepares the working copies of the parameters for a pass, and sets the values that are fixed for the step.
// Dropout depends on the epoch and the sample, not on the step. The parameter first describes the first micro-batch of
// the pass.
func (r *Replica) begin(first batchFacts) error {
	key := random.New(r.opts.Seed, "dropout").Bits(uint64(first.epoch))
	scale, perSample := r.Scale()/float64(r.opts.targets()), 0.0
	if r.plans.sampled {
		if r.stepLabels = cmp.Or(first.stepLabels, r.stepLabels); r.stepLabels == 0 {
			return errors.New("replica: the samples have a target each, but the batch lacks the number of labels of the step: want a data.LabelCounter")
		}
		// unscale multiplies both losses by targets / labels, but the sum over samples is divided by the number of
		// samples.
		perSample = scale * float64(r.stepLabels) / float64(cmp.Or(first.step, r.opts.BatchSize))
	}
	if err := first.pass.setScale(r.stream, scale, perSample, key); err != nil {
		return err
	}
	if err := first.pass.plan.Prepare(r.stream); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// leave ends a step, and restores the whole shares for the next step. No copy of shares may be in progress.
func (r *Replica) leave() error {
	r.ready = nil
	if !r.partial {
		return nil
	}
	r.partial = false
	return r.sums.SetShares(r.shares.All())
}
