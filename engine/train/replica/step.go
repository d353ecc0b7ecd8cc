package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// StepOptions are the inputs of one optimizer step, except its samples.
type StepOptions struct {
	Rate  float64 // learning rate
	Norms bool    // measure norms of single parameters; needs Options.Norms
	// the values that several ranks exchange; nil: the numbers of targets that count; not used by a single rank
	Exchange Exchange
}

// Step runs one optimizer step:
//
//	g = d/dw 1/M · sum of the losses of the M labelled targets of the global batch; w = update(w, g)
//
// The global batch consists of Accumulation micro-batches, whose gradients are summed. With several ranks, batches
// returns this rank's share of each micro-batch. An all-reduce sums the gradients over all ranks, so g is equal on all
// ranks. Step does not allocate.
func (r *Replica) Step(ctx context.Context, batches Batches, o StepOptions) (out StepResult, err error) {
	if err := r.gradient(ctx, batches, &out); err != nil {
		return out, err
	}
	count := out.Count
	if r.sums != nil {
		if o.Exchange == nil {
			o.Exchange = (*counting)(r)
		}
		if count, err = r.sumOverRanks(ctx, o.Exchange, &out); err != nil {
			return out, err
		}
	}
	if r.plans.sampled && count != r.stepLabels {
		return out, fmt.Errorf("replica: the samples of this step have %d labels, but this rank counted %d before it: a sample cannot be read on some ranks only; run hetero-train data verify on each machine",
			count, r.stepLabels)
	}
	return out, r.update(ctx, batches, o, count, &out)
}

// gradient computes the gradient of this rank's samples and starts the sum over ranks. With a single rank, the device
// may still be computing when gradient returns.
func (r *Replica) gradient(ctx context.Context, batches Batches, out *StepResult) error {
	r.unread, r.ready, r.stepLabels = r.unread[:0], nil, 0
	if err := r.clock.start(r.stream, r.recorder); err != nil {
		return err
	}
	micros := r.opts.Accumulation
	for micro := 0; micro < micros; micro++ {
		batch, err := r.nextBatch(ctx, batches, out)
		if err != nil {
			return err
		}
		if err := r.clock.lap(&out.Times, dataPart); err != nil {
			return err
		}
		if micro == 0 {
			micros = r.microBatches(batch)
			if err := r.keepStatistics(); err != nil {
				return err
			}
		}
		last := micro == micros-1
		if err := r.enter(batch, micro == 0); err != nil {
			return err
		}
		if last {
			if err := r.skipEmpty(ctx, batches, r.opts.Accumulation-micros); err != nil {
				return err
			}
			if micro == 0 && r.opts.Accumulation > 1 && r.sums != nil {
				if err := r.stream.Run(r.clearProgram); err != nil {
					return fmt.Errorf("gradient sum: %w", err)
				}
			}
		}
		pass := batch.pass
		if err := pass.forward(r.stream); err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		if err := r.clock.lap(&out.Times, forwardPart); err != nil {
			return err
		}
		if err := pass.backward(r.stream, last); err != nil {
			return fmt.Errorf("backward: %w", err)
		}
		if err := r.accumulate(micro, last); err != nil {
			return err
		}
		if err := pass.fetch(r.stream, micro); err != nil {
			return err
		}
		if err := r.clock.lap(&out.Times, backwardPart); err != nil {
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
	// Exchanges run inside the passes, so their wait cannot exceed the time of the passes. If the device does not
	// report the wait, the host measures it. The measured time then includes work that ran at the same time.
	out.Times.Exchanges = min(r.sums.Exchanges(), out.Times.Forward+out.Times.Backward)
	return err // an error of this rank; train.Run sends it to the other ranks
}

// settle waits for all enqueued work and reads the results.
func (r *Replica) settle(out *StepResult) error {
	begun := time.Now()
	if err := r.stream.Sync(); err != nil {
		return err
	}
	if r.recorder != nil && r.recorder.Noted() {
		r.recorder.Host(timeline.Wait, "wait for the device", begun)
	}
	for micro, batch := range r.unread {
		out.Add(batch.pass.sums(batch.n, micro))
	}
	r.unread = r.unread[:0]
	return r.clock.read(&out.Times)
}

// sumOverRanks waits until the gradient is the sum over all ranks, and until the exchange, which follows the all-reduce
// of the last bucket, is complete. It returns the number of labelled targets of the global batch.
func (r *Replica) sumOverRanks(ctx context.Context, exchange Exchange, out *StepResult) (count int, err error) {
	op, err := exchange.Send(*out)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := r.clock.lap(&out.Times, noPart); err != nil {
		return 0, err
	}
	times, err := r.sums.Finish(ctx, r.stream, op)
	if err != nil {
		return 0, err
	}
	if r.recorder != nil {
		r.recorder.Host(timeline.Wait, "wait for sums over ranks", begun)
	}
	out.Times.Hidden, out.Buckets, out.Bytes, out.Reductions = times.Hidden, times.Buckets, times.Bytes,
		r.sums.Reductions()
	if err := r.clock.lap(&out.Times, communicationPart); err != nil {
		return 0, err
	}
	return exchange.Received()
}

// update updates the parameters. At the interval of the averages, it also updates the averages of the parameters. The
// parameter count is the number of labelled targets in the global batch. A single rank also stages the first batch of
// the next step, from batches.
func (r *Replica) update(ctx context.Context, batches Batches, o StepOptions, count int, out *StepResult) error {
	if err := r.clock.lap(&out.Times, noPart); err != nil {
		return err
	}
	measure := o.Norms && r.norms != nil
	if measure {
		if err := r.norms.Before(r.stream); err != nil {
			return err
		}
	}
	out.Scale = r.Scale()
	unscale := r.unscale(count, out.Scale)
	r.unscaled = unscale
	if err := r.optim.Step(r.stream, o.Rate, unscale); err != nil {
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
	if err := r.clock.lap(&out.Times, optimizerPart); err != nil {
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
	if err := r.leave(); err != nil {
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

// unscale returns the factor that turns the gradient sum into the gradient of the mean loss. The passes divide by the
// number of all targets of a batch. The number of targets that count is known only after the passes, from the reports
// of all ranks.
func (r *Replica) unscale(count int, scale float64) float64 {
	if all := r.opts.targets(); count != all && count > 0 { // without targets the gradient is 0
		return float64(all) / float64(count) / scale
	}
	return 1 / scale
}

// accumulate adds the gradients of one micro-batch to the sum. With peers, the backward pass of the last micro-batch
// adds its own gradients.
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
