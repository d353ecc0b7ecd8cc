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

// Batches hands out the micro-batches of a run, one after the other.
type Batches interface {
	Next(ctx context.Context) (*data.Batch, error)
}

// StepTimes are where the time of a step went on one rank. Forward includes the working copies of the parameters;
// Communication is what the rank waited for sums of gradients after its backward pass.
type StepTimes struct {
	Data, Forward, Backward, Communication, Optimizer time.Duration

	Hidden    time.Duration // communication under the backward pass, no part of Total
	Exchanges time.Duration // what the passes stood still for exchanges of batch normalisation, mostly waiting for slower ranks
}

// Total is the whole step.
func (t StepTimes) Total() time.Duration {
	return t.Data + t.Forward + t.Backward + t.Communication + t.Optimizer
}

// StepResult is what one optimizer step gave on this rank.
type StepResult struct {
	Sums                        // of this rank's samples
	GradNorm float64            // of the gradient of the mean loss, before clipping
	Updated  bool               // false: the norm was not finite and nothing was updated
	Scale    float64            // of the loss; 1 without one
	Lowered  bool               // not updated because of the scale, which is lower now
	Norms    []optim.ParamNorms // of single parameters, in a step that measures them; else nil
	Times    StepTimes
	Buckets  int   // sums of gradients over ranks
	Bytes    int64 // that were summed
	Replaced int   // samples that could not be read
}

// Step is one optimizer step at learning rate rate:
//
//	g = d/dw 1/B · sum over the B samples of the global batch of their losses; w = update(w, g)
//
// The global batch comes as Accumulation micro-batches whose gradients are summed; with peers batches are this rank's share of
// each, and gradients are summed over all ranks, so that g is the same everywhere. It allocates nothing.
func (r *Replica) Step(ctx context.Context, batches Batches, rate float64) (out StepResult, err error) {
	if err := r.gradient(ctx, batches, &out); err != nil {
		return out, err
	}
	if err := r.sumOverRanks(ctx, &out); err != nil {
		return out, err
	}
	return out, r.update(ctx, batches, rate, false, &out)
}

// Trace notes from the next step on what the replica does; nil ends that. Unless the device notes for itself (timeline.NewNoted), its programs are run launch by
// launch, each timed. On a device that models time it is an error. Between steps only.
func (r *Replica) Trace(rec *timeline.Recorder) error {
	if rec != nil && r.dev.Info().Modelled {
		return fmt.Errorf("trace: device %s models time: its launches and the host have no common clock", r.dev.Info().Name)
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

// gradient is the gradient of this rank's samples; its sum over ranks has begun. Without other ranks the device may still be at it.
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
	// Passes stood no longer than they took. Where the device does not tell how long they stood the host's clock says how long exchanges took, and what ran
	// beside one is in that.
	out.Times.Exchanges = min(r.sums.Exchanges(), out.Times.Forward+out.Times.Backward)
	return err // none: the others are told how it went
}

// settle waits for all that was enqueued, and reads what came of it.
func (r *Replica) settle(out *StepResult) error {
	begun := time.Now()
	if err := r.stream.Sync(); err != nil {
		return err
	}
	if r.recorder != nil && r.recorder.Noted() {
		r.recorder.Host(timeline.Wait, "wait for the device", begun)
	}
	for micro, n := range r.unread {
		out.Add(r.now.train.sums(n, micro))
	}
	r.unread = r.unread[:0]
	return r.clock.read(&out.Times)
}

// nextBatch brings this rank's part of the next micro-batch to where the pass reads it.
func (r *Replica) nextBatch(ctx context.Context, batches Batches, out *StepResult) (epoch int, err error) {
	var batch batchFacts
	if pass := r.now.train; r.feed != nil {
		batch, err = r.feed.take(ctx, batches, pass, r.now.stagingAt(r.arena), r.stream)
	} else {
		batch, err = r.loadBatch(ctx, batches, pass)
	}
	r.unread = append(r.unread, batch.n)
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
	return batchFacts{batch.N, batch.Epoch, batch.Replaced}, err
}

// stageNext reads the next micro-batch while the device is busy with this one. What the device has to wait for it is time of data.
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

// forget drops what was read ahead: the next batch comes from another place in the data.
func (r *Replica) forget() error { return r.feed.discard() }

// sumOverRanks waits until the gradient is that of all ranks' samples. behind goes to the other ranks with it.
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

// update changes the parameters, and their averages where that is due. measure asks for norms of single parameters. The batch after this step's comes from
// batches.
func (r *Replica) update(ctx context.Context, batches Batches, rate float64, measure bool, out *StepResult) error {
	if err := r.lap(&out.Times, noPart); err != nil {
		return err
	}
	if measure = measure && r.norms != nil; measure {
		if err := r.norms.Before(r.stream); err != nil {
			return err
		}
	}
	out.Scale = r.lossScale()
	if err := r.optim.Step(r.stream, rate, 1/out.Scale); err != nil {
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
		out.Norms = r.norms.Result(1 / out.Scale)
	}
	if r.recorder != nil {
		r.recorder.Step()
	}
	return nil
}

// lossScale is the factor of this step's gradients, a power of two.
func (r *Replica) lossScale() float64 {
	if r.scale == nil {
		return 1
	}
	return r.scale.Scale
}

// begin makes the working copies of the parameters and sets what holds for the whole step. Dropout depends on the
// epoch and the sample, not on the step.
func (r *Replica) begin(epoch int) error {
	key := random.New(r.opts.Seed, "dropout").Bits(uint64(epoch))
	if err := r.now.train.setScale(r.stream, r.lossScale()/float64(r.opts.BatchSize), key); err != nil {
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

// accumulate adds the gradients of one micro-batch to the sum. Those of the last one the sum over ranks adds itself.
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

// Evaluate runs one batch, of at most this rank's share of a micro-batch, with running statistics and without dropout.
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
	return eval.sums(b.N, 0), nil
}
