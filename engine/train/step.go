package train

import (
	"context"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nn/random"
)

// Batches hands out the micro-batches of a run, one after the other.
type Batches interface {
	Next(ctx context.Context) (*data.Batch, error)
}

// StepTimes are where the time of a step went. Forward includes the working copies of the parameters.
type StepTimes struct {
	Data, Forward, Backward, Optimizer time.Duration
}

// Total is the whole step.
func (t StepTimes) Total() time.Duration { return t.Data + t.Forward + t.Backward + t.Optimizer }

// StepResult is what one optimizer step gave.
type StepResult struct {
	Sums
	GradNorm float64 // of the gradient of the mean loss, before clipping
	Updated  bool    // false: the norm was not finite and nothing was updated
	Times    StepTimes
}

// Step is one optimizer step at learning rate rate:
//
//	g = d/dw 1/B · sum over the B samples of the global batch of their losses; w = update(w, g)
//
// The global batch comes as Accumulation micro-batches whose gradients are summed. It allocates nothing.
func (r *Replica) Step(ctx context.Context, batches Batches, rate float64) (out StepResult, err error) {
	clock := time.Now()
	lap := func(into *time.Duration) {
		now := time.Now()
		*into += now.Sub(clock)
		clock = now
	}
	for micro := range r.opts.Accumulation {
		batch, err := batches.Next(ctx)
		if err != nil {
			return out, err
		}
		n, epoch := batch.N, batch.Epoch
		err = r.train.load(r.stream, batch)
		batch.Release()
		if err != nil {
			return out, err
		}
		lap(&out.Times.Data)
		if micro == 0 {
			if err := r.begin(epoch); err != nil {
				return out, err
			}
		}
		if err := r.train.plan.Forward(r.stream); err != nil {
			return out, fmt.Errorf("forward: %w", err)
		}
		lap(&out.Times.Forward)
		if err := r.train.plan.Backward(r.stream); err != nil {
			return out, fmt.Errorf("backward: %w", err)
		}
		if err := r.accumulate(micro); err != nil {
			return out, err
		}
		if err := r.finishPass(r.train); err != nil {
			return out, err
		}
		out.Add(r.train.sums(n))
		lap(&out.Times.Backward)
	}
	if err := r.optim.Step(r.stream, rate, 1); err != nil {
		return out, err
	}
	if err := r.stream.Sync(); err != nil {
		return out, fmt.Errorf("update: %w", err)
	}
	out.GradNorm, out.Updated = r.optim.Result()
	lap(&out.Times.Optimizer)
	return out, nil
}

// begin makes the working copies of the parameters and sets what holds for the whole step. Dropout depends on the
// epoch and the sample, not on the step.
func (r *Replica) begin(epoch int) error {
	key := random.New(r.opts.Seed, "dropout").Bits(uint64(epoch))
	if err := r.train.setScale(r.stream, 1/float64(r.opts.BatchSize), key); err != nil {
		return err
	}
	if err := r.train.plan.Prepare(r.stream); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// accumulate adds the gradients of one micro-batch to the sum.
func (r *Replica) accumulate(micro int) error {
	if r.sum == nil {
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

// finishPass waits for the results of a pass.
func (r *Replica) finishPass(p *pass) error {
	if err := p.fetch(r.stream); err != nil {
		return err
	}
	return r.stream.Sync()
}

// PrepareEvaluation makes the working copies of the parameters for Evaluate.
func (r *Replica) PrepareEvaluation() error { return r.eval.plan.Prepare(r.stream) }

// Evaluate runs one batch, of at most a micro-batch of samples, with running statistics and without dropout.
func (r *Replica) Evaluate(b *data.Batch) (Sums, error) {
	if err := r.eval.load(r.stream, b); err != nil {
		return Sums{}, err
	}
	if err := r.eval.plan.Forward(r.stream); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	if err := r.finishPass(r.eval); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	return r.eval.sums(b.N), nil
}
