package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Batches returns the micro-batches of a run in order.
type Batches interface {
	Next(ctx context.Context) (*data.Batch, error)
}

// StepTimes are the parts of a step's time on one rank. Forward includes the working copies of the parameters.
// Communication is the time that the rank waited for sums of gradients after its backward pass.
type StepTimes struct {
	Data, Forward, Backward, Communication, Optimizer time.Duration

	Hidden    time.Duration // communication during the backward pass; not in Total
	Exchanges time.Duration // blocked on exchanges of batch normalisation, mostly waiting for slower ranks
}

// Total returns the time of the whole step.
func (t StepTimes) Total() time.Duration {
	return t.Data + t.Forward + t.Backward + t.Communication + t.Optimizer
}

// StepResult is the result of one optimizer step on this rank.
type StepResult struct {
	Sums                        // of this rank's samples
	GradNorm float64            // of the gradient of the mean loss, before clipping
	Updated  bool               // false: the norm was not finite, so nothing was updated
	Scale    float64            // of the loss; 1 without a loss scale
	Lowered  bool               // not updated because the loss scale was too high; it is lower now
	Norms    []optim.ParamNorms // of single parameters, in a step that measures them; else nil
	Times    StepTimes
	Buckets  int   // all-reduces of gradients
	Bytes    int64 // that were summed
	Replaced int   // samples that could not be read
}

// Step is one optimizer step at the given learning rate:
//
//	g = d/dw 1/M · sum over the M targets of the global batch that count of their losses; w = update(w, g)
//
// The global batch consists of Accumulation micro-batches, whose gradients are summed. With peers, batches returns this
// rank's share of each micro-batch, and an all-reduce sums the gradients over all ranks, so g is equal on all. Step
// allocates nothing.
func (r *Replica) Step(ctx context.Context, batches Batches, rate float64) (out StepResult, err error) {
	if err := r.gradient(ctx, batches, &out); err != nil {
		return out, err
	}
	count := out.Count
	if x := r.reports; x != nil {
		x.put(&RankStep{Sums: out.Sums}, wish{})
		if err := r.sumOverRanks(ctx, &out, x.op); err != nil {
			return out, err
		}
		ranks, _, err := x.read()
		if err != nil {
			return out, err
		}
		count = total(ranks).Count
	}
	return out, r.update(ctx, batches, rate, false, count, &out)
}

// Trace records the replica's work from the next step on; nil stops recording. Unless the device records its own
// activity (timeline.NewNoted), the replica runs and times each launch separately. Trace returns an error on a device
// that models time. Call it only between steps.
func (r *Replica) Trace(rec *timeline.Recorder) error {
	if rec != nil && r.dev.Info().Modelled {
		return fmt.Errorf("trace: device %s only models time, so its launches cannot be put on the clock of the host", r.dev.Info().Name)
	}
	if r.plain == nil {
		r.plain = r.stream
	}
	r.recorder, r.stream = rec, r.plain
	if rec != nil && !rec.Noted() {
		r.stream = rec.Stream(r.plain)
	}
	if r.sums != nil && rec != nil {
		r.sums.Watch(func(gradients bool, name string, begun, ended time.Time, bytes int64) {
			track := timeline.Statistics
			if gradients {
				track = timeline.Gradients
			}
			rec.Exchange(track, name, begun, ended, bytes)
		})
	} else if r.sums != nil {
		r.sums.Watch(nil)
	}
	return nil
}

// gradient computes the gradient of this rank's samples and starts its sum over ranks. With a single rank the device
// may still be computing when gradient returns.
func (r *Replica) gradient(ctx context.Context, batches Batches, out *StepResult) error {
	if err := r.startStep(); err != nil {
		return err
	}
	pass := r.now.train
	for micro := range r.opts.Accumulation {
		epoch, err := r.nextBatch(ctx, batches, out)
		if err != nil {
			return err
		}
		if err := r.lap(&out.Times, dataPart); err != nil {
			return err
		}
		if micro == 0 {
			if err := r.begin(epoch); err != nil {
				return err
			}
		}
		if err := pass.forward(r.stream); err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		if err := r.lap(&out.Times, forwardPart); err != nil {
			return err
		}
		last := micro == r.opts.Accumulation-1
		if err := pass.backward(r.stream, last); err != nil {
			return fmt.Errorf("backward: %w", err)
		}
		if err := r.accumulate(micro, last); err != nil {
			return err
		}
		if err := pass.fetch(r.stream, micro); err != nil {
			return err
		}
		if err := r.lap(&out.Times, backwardPart); err != nil {
			return err
		}
		if !last || r.sums != nil {
			if err := r.stageNext(ctx, batches, &out.Times); err != nil {
				return err
			}
		}
	}
	if r.sums == nil {
		return nil
	}
	err := r.settle(out)
	// The passes cannot have been blocked for longer than they took. If the device does not report how long they were
	// blocked, Exchanges is measured by the host and includes work that ran at the same time.
	out.Times.Exchanges = min(r.sums.Exchanges(), out.Times.Forward+out.Times.Backward)
	return err // a single rank; with peers the other ranks receive the error below
}

// settle waits for all enqueued work and reads its results.
func (r *Replica) settle(out *StepResult) error {
	begun := time.Now()
	if err := r.stream.Sync(); err != nil {
		return err
	}
	if r.recorder != nil && r.recorder.Noted() {
		r.recorder.Host(timeline.Wait, "wait for the device", begun)
	}
	for micro, batch := range r.unread {
		out.Add(r.now.train.sums(batch.n, micro))
	}
	r.unread = r.unread[:0]
	return r.clock.read(&out.Times)
}

// nextBatch copies this rank's part of the next micro-batch to the inputs of the pass.
func (r *Replica) nextBatch(ctx context.Context, batches Batches, out *StepResult) (epoch int, err error) {
	var batch batchFacts
	if pass := r.now.train; r.feed != nil {
		batch, err = r.feed.take(ctx, batches, pass, r.now.stagingAt(r.arena), r.stream)
	} else {
		batch, err = r.loadBatch(ctx, batches, pass)
	}
	r.unread = append(r.unread, batch)
	out.Count += batch.count
	out.Replaced += batch.replaced
	return batch.epoch, err
}

func (r *Replica) loadBatch(ctx context.Context, batches Batches, p *pass) (batchFacts, error) {
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
	err = p.load(r.stream, batch)
	if r.recorder != nil {
		r.recorder.Host(timeline.Work, "stage the batch", begun)
	}
	return factsOf(batch), err
}

// stageNext reads the next micro-batch while the device computes. The time that the device waits for it counts as data
// time.
func (r *Replica) stageNext(ctx context.Context, batches Batches, times *StepTimes) error {
	if r.feed == nil {
		return nil
	}
	begun := time.Now()
	r.feed.stage(ctx, batches, r.now.train, r.now.stagingAt(r.arena), r.stream)
	if r.recorder != nil {
		r.recorder.Host(timeline.Work, "stage the next batch", begun)
	}
	return r.lap(times, dataPart)
}

// forget drops the prefetched batch, because the next one comes from another position of the data.
func (r *Replica) forget() error { return r.feed.discard() }

// sumOverRanks waits until the gradient is the sum over all ranks. The operations in behind run after the last bucket.
func (r *Replica) sumOverRanks(ctx context.Context, out *StepResult, behind ...collective.Op) error {
	if r.sums == nil {
		return nil
	}
	begun := time.Now()
	if err := r.lap(&out.Times, noPart); err != nil {
		return err
	}
	times, err := r.sums.Finish(ctx, r.stream, behind...)
	if err != nil {
		return err
	}
	if r.recorder != nil {
		r.recorder.Host(timeline.Wait, "wait for sums over ranks", begun)
	}
	out.Times.Hidden, out.Buckets, out.Bytes = times.Hidden, times.Buckets, times.Bytes
	return r.lap(&out.Times, communicationPart)
}

// update updates the parameters, and their averages if due. measure requests norms of single parameters. count is the
// number of targets of the global batch that count. The next step's first batch comes from batches.
func (r *Replica) update(ctx context.Context, batches Batches, rate float64, measure bool, count int, out *StepResult) error {
	if err := r.lap(&out.Times, noPart); err != nil {
		return err
	}
	if measure = measure && r.norms != nil; measure {
		if err := r.norms.Before(r.stream); err != nil {
			return err
		}
	}
	out.Scale = r.lossScale()
	unscale := r.unscale(count, out.Scale)
	if err := r.optim.Step(r.stream, rate, unscale); err != nil {
		return err
	}
	if measure {
		if err := r.norms.After(r.stream); err != nil {
			return err
		}
	}
	if r.mean != nil {
		if err := r.mean.Step(r.stream, r.optim.Steps()); err != nil {
			return err
		}
	}
	if err := r.lap(&out.Times, optimizerPart); err != nil {
		return err
	}
	if r.sums == nil {
		if err := r.stageNext(ctx, batches, &out.Times); err != nil {
			return err
		}
	}
	if err := r.settle(out); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	r.began = false
	out.GradNorm, out.Updated = r.optim.Result()
	if r.scale != nil {
		out.Lowered = r.scale.Update(out.Updated)
	}
	if measure {
		out.Norms = r.norms.Result(unscale)
	}
	if r.recorder != nil {
		r.recorder.Step()
	}
	return nil
}

// unscale returns the factor of the gradient sum. The passes divide by the number of targets of a whole batch, because
// the number of those that count is known only after them, when all ranks have reported theirs.
func (r *Replica) unscale(count int, scale float64) float64 {
	if all := r.opts.targets(); count != all && count > 0 { // without targets the gradient is 0
		return float64(all) / float64(count) / scale
	}
	return 1 / scale
}

// lossScale returns the factor of this step's gradients, a power of two.
func (r *Replica) lossScale() float64 {
	if r.scale == nil {
		return 1
	}
	return r.scale.Scale
}

// begin makes the working copies of the parameters and sets the values of the whole step. Dropout depends on the epoch
// and the sample, not on the step.
func (r *Replica) begin(epoch int) error {
	key := random.New(r.opts.Seed, "dropout").Bits(uint64(epoch))
	if err := r.now.train.setScale(r.stream, r.lossScale()/float64(r.opts.targets()), key); err != nil {
		return err
	}
	if err := r.keepStatistics(); err != nil {
		return err
	}
	if err := r.now.train.plan.Prepare(r.stream); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// accumulate adds the gradients of one micro-batch to the sum. The sum over ranks adds those of the last micro-batch.
func (r *Replica) accumulate(micro int, last bool) error {
	if r.sum == nil || r.sums != nil && last {
		return nil
	}
	var err error
	if micro == 0 {
		err = r.stream.Copy(device.Whole(r.sum), device.Whole(r.state.Grads))
	} else {
		err = r.stream.Run(r.addProgram)
	}
	if err != nil {
		return fmt.Errorf("gradient sum: %w", err)
	}
	return nil
}

// PrepareEvaluation makes the working copies of the parameters for Evaluate.
func (r *Replica) PrepareEvaluation() error {
	if r.now.eval == nil {
		return nil
	}
	return r.now.eval.plan.Prepare(r.stream)
}

// Evaluate runs one batch of at most this rank's share of a micro-batch, with running statistics and without dropout.
func (r *Replica) Evaluate(b *data.Batch) (Sums, error) {
	if b.N == 0 {
		return Sums{}, nil
	}
	eval := r.now.eval
	if err := eval.load(r.stream, b); err != nil {
		return Sums{}, err
	}
	if err := eval.plan.Forward(r.stream); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	if err := errors.Join(eval.fetch(r.stream, 0), r.stream.Sync()); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	sums := eval.sums(b.N, 0)
	sums.Count = targetsOf(b)
	return sums, nil
}
