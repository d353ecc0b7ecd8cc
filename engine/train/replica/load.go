package replica

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/engine/timeline"
)

// nextBatch copies this rank's part of the next micro-batch to the inputs of the pass.
func (r *Replica) nextBatch(ctx context.Context, batches Batches, out *StepResult) (batch batchFacts, err error) {
	if r.feed != nil {
		batch, err = r.feed.take(ctx, batches, r.now, r.now.stagingAt(r.arena), r.stream)
	} else {
		batch, err = r.loadBatch(ctx, batches)
	}
	r.unread = append(r.unread, batch)
	out.Count += batch.count
	out.Positions = r.opts.fraction(batch.length)
	out.Replaced += batch.replaced
	return batch, err
}

func (r *Replica) loadBatch(ctx context.Context, batches Batches) (batchFacts, error) {
	begun := time.Now()
	batch, err := batches.Next(ctx)
	if err != nil {
		return batchFacts{}, err
	}
	defer batch.Release()
	if r.recorder != nil {
		r.recorder.Host(timeline.Wait, "wait for a batch", begun)
		begun = time.Now()
	}
	facts, err := r.factsOf(batch, r.now)
	if err != nil {
		return facts, err
	}
	err = facts.pass.load(r.stream, batch)
	if r.recorder != nil {
		r.recorder.Host(timeline.Work, "stage the batch", begun)
	}
	return facts, err
}

// stageNext reads the next micro-batch while the device computes. If the device has to wait for this micro-batch, the
// wait counts as data time.
func (r *Replica) stageNext(ctx context.Context, batches Batches, times *StepTimes) error {
	if r.feed == nil {
		return nil
	}
	begun := time.Now()
	r.feed.stage(ctx, batches, r.now, r.now.stagingAt(r.arena), r.stream)
	if r.recorder != nil {
		r.recorder.Host(timeline.Work, "stage the next batch", begun)
	}
	return r.clock.lap(times, dataPart)
}

// Discard drops the prefetched batch. The caller continues at another position of the data.
func (r *Replica) Discard() error { return r.feed.discard() }

// Staged reports whether the first batch of the next step is already staged.
func (r *Replica) Staged() bool { return r.feed != nil && r.feed.staged }
