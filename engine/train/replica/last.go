package replica

import (
	"context"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
)

// The last step of an epoch may have fewer samples than the others (data.Options.KeepLast). Its micro-batches are
// filled in order: first whole ones, then a smaller one. The remaining micro-batches are empty and run no passes. In
// the smaller micro-batch, each rank gets the existing positions of its share.
//
// A pass over padded samples gives the same gradients, because the loss ignores padding. If the model computes
// statistics over samples, the smaller micro-batch has plans for its exact number of samples instead.

// checkLast returns an error for a last step that the ranks cannot compute exactly.
func (o Options) checkLast(exact bool) error {
	micro := o.MicroBatch()
	if o.LastBatch < 0 || o.LastBatch >= o.BatchSize {
		return fmt.Errorf("replica: last batch of %d samples, want 0 to %d", o.LastBatch, o.BatchSize-1)
	}
	if !exact || o.Peers == nil || o.Peers.SyncNorm || o.LastBatch < micro || o.LastBatch%micro == 0 {
		return nil
	}
	return fmt.Errorf("replica: the last batch of %d samples has micro-batches of %d and of %d samples, but ranks average their running statistics once per step with the same weights: set model.batch_norm = \"sync\", train.grad_accumulation = 1 or data.drop_last = true",
		o.LastBatch, micro, o.LastBatch%micro)
}

// partSamples returns the number of samples, over all ranks, of the micro-batch that needs its own plans; 0: no
// micro-batch does.
func (r *Replica) partSamples() int {
	if !r.exact {
		return 0
	}
	return r.opts.LastBatch % r.opts.MicroBatch()
}

// preparePart makes the plans of the smaller micro-batch ready for the current shares. Before training, it compiles
// them, so that a lack of memory or an unsupported size ends the run at its start. If the shares change during
// training, Prepare has already compiled the plans.
func (r *Replica) preparePart() error {
	total := r.partSamples()
	if total == 0 {
		return nil
	}
	_, err := r.partPlans(total)
	return err
}

// factsOf returns the batchFacts of a batch, including its pass. The pass belongs to p, or to the plans of the smaller
// micro-batch.
func (r *Replica) factsOf(b *data.Batch, p *plans) (batchFacts, error) {
	facts := batchFacts{n: b.N, total: b.Total, step: b.StepSamples, count: targetsOf(b), stepLabels: b.StepLabels,
		length: b.Length, epoch: b.Epoch, replaced: b.Replaced}
	if r.exact && r.smaller(facts) {
		var err error
		if p, err = r.partPlans(b.Total); err != nil {
			return facts, err
		}
	}
	facts.pass = p.passOf(b.Length)
	return facts, nil
}

// smaller reports whether a micro-batch has fewer samples than the others.
func (r *Replica) smaller(batch batchFacts) bool { return batch.total < r.shares.Whole() }

// partPlans returns this rank's plans for a micro-batch of total samples over all ranks.
func (r *Replica) partPlans(total int) (*plans, error) {
	k := r.plans.partKey(r.shares.OwnWithin(total), total)
	if r.part != nil && r.part.planKey == k {
		return r.part, nil
	}
	r.releasePart()
	p, err := r.plans.acquireKey(k)
	if err != nil {
		return nil, fmt.Errorf("replica: plans for the %d samples of the last step of an epoch: %w", total, err)
	}
	r.part = p
	return p, nil
}

func (r *Replica) releasePart() {
	if r.part != nil {
		r.plans.release(r.part)
		r.part = nil
	}
}

// microBatches returns the number of micro-batches with samples in a step whose first micro-batch is first.
func (r *Replica) microBatches(first batchFacts) int {
	if first.step == 0 { // the batches do not state it, so all of them are whole
		return r.opts.Accumulation
	}
	whole := r.shares.Whole()
	return min((first.step+whole-1)/whole, r.opts.Accumulation)
}

// skipEmpty takes the last n micro-batches of a step, which have no samples, from the loader.
func (r *Replica) skipEmpty(ctx context.Context, batches Batches, n int) error {
	for range n {
		b, err := batches.Next(ctx)
		if err != nil {
			return err
		}
		b.Release()
	}
	return nil
}
