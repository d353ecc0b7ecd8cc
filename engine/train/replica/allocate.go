package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// allocate allocates all device memory that the replica will use.
func (r *Replica) allocate() (err error) {
	defer func() {
		if r.arena == nil && errors.Is(err, device.ErrOutOfMemory) && !errors.As(err, new(*MemoryError)) {
			err = fmt.Errorf("%w: the memory is too small even without activations, so a smaller batch does not help: use a smaller model, an optimizer with less state (optimizer.name, ema.decay), or a device with more memory",
				err)
		}
	}()
	if r.state, err = plan.NewState(r.cache, r.plans.params); err != nil {
		return err
	}
	r.closer.add(r.state.Close)
	if err := r.allocateSpare(); err != nil {
		return err
	}
	if r.opts.Accumulation > 1 {
		if err := r.allocateSum(); err != nil {
			return err
		}
	}
	grads := r.gradients()
	if r.optim, err = optim.New(r.cache, r.state, grads, r.opts.Optimizer); err != nil {
		return err
	}
	r.closer.add(r.optim.Close)
	if r.opts.Average.Decay != 0 {
		if r.mean, err = optim.NewAverage(r.cache, r.optim, r.opts.Average); err != nil {
			return err
		}
		r.closer.add(r.mean.Close)
	}
	if r.opts.Norms {
		if r.norms, err = optim.NewNorms(r.cache, r.state, grads); err != nil {
			return err
		}
		r.closer.add(r.norms.Close)
	}
	if err := r.openSync(grads); err != nil {
		return err
	}
	if err := r.openTally(); err != nil {
		return err
	}
	if free, known := r.memoryLeft(); known {
		r.plans.free = max(free, 1)
	}
	if most := r.opts.MemoryBytes; most > 0 {
		used, _ := r.dev.Memory()
		r.plans.free = max(most-used, 1)
	}
	if h := r.opts.Host; h != nil && h.Limit.Bytes > 0 {
		if r.limit, r.plans.scarce = h.Limit, h.Limit.Addresses; r.plans.scarce {
			r.plans.capacity = min(r.plans.capacity, scarcePlans)
		}
		r.plans.hostLoad = func(p *plans) float64 {
			return float64(r.account(p).HostBytes()-r.spread()) / float64(r.limit.Bytes)
		}
	}
	if err := r.settleShares(); err != nil {
		return err
	}
	if err := r.allocateArena(); err != nil {
		return err
	}
	if err := r.tuneSync(grads); err != nil {
		return err
	}
	r.plans.useMemory(planMemory{r.arena, r.staging, r.state, r.sums})
	if r.now, err = r.plans.acquire(r.shares.Own()); err != nil {
		return err
	}
	return r.preparePart()
}

// allocateArena allocates memory for the activations of the largest share. On a device that uses host memory, pages
// are committed when they are first touched.
func (r *Replica) allocateArena() (err error) {
	if r.now, err = r.plans.compiled(r.shares.Own()); err != nil {
		return err
	}
	largest, err := r.plans.compiled(max(r.shares.Most(), r.now.samples))
	if err != nil {
		return err
	}
	r.staging = max(largest.staging, r.now.staging)
	bytes := max(largest.activationBytes(), r.now.activationBytes()) + r.staging
	bytes = max(bytes, 1)
	r.reserved = r.account(largest)
	if r.arena, err = r.dev.Alloc(bytes); err != nil {
		return r.explainAddresses(tooLarge(r.dev, largest.samples, bytes, err), bytes)
	}
	r.closer.add(r.arena.Free)
	r.unread = make([]batchFacts, 0, r.opts.Accumulation)
	if !r.dev.Info().Behind {
		return nil
	}
	if r.feed, err = newFeed(r.dev, r.staging); err == nil {
		r.feed.facts = r.factsOf
		r.closer.add(r.feed.close)
	}
	return err
}

// explainAddresses adds the account of this rank to a *MemoryError if a limit of addresses is the reason. The account
// contains the kernels of one share, but the search for shares has also compiled others. Their addresses become a part
// of the account.
func (r *Replica) explainAddresses(err error, bytes int64) error {
	var e *MemoryError
	host := r.opts.Host
	if host == nil || host.AddressesLeft == nil || !r.limit.Addresses || !errors.As(err, &e) {
		return err
	}
	left, limited := host.AddressesLeft()
	if !limited || left >= bytes {
		return err
	}
	a := r.reserved
	a.Host = append(slices.Clone(a.Host), memory.Part{Name: OtherKernels,
		Bytes: max(a.Limit.Bytes-a.HostBytes(), 0) + bytes - left})
	e.Account, e.Fit = &a, UnknownFit
	return e
}

// allocateSum allocates the buffer that sums the gradients of micro-batches, and the program that adds to it: sum +=
// grads.
func (r *Replica) allocateSum() (err error) {
	params := r.state.Params
	if r.sum, err = r.state.NewFlat(params.TrainBytes); err != nil {
		return fmt.Errorf("replica: allocate %d bytes for the gradient sum: %w", params.TrainBytes, err)
	}
	r.closer.add(r.sum.Free)
	flat := device.Spec(params.DType, params.TrainElements())
	sum := plan.At(r.sum, 0, flat)
	r.addition = plan.NewSequence(r.cache)
	r.closer.add(r.addition.Close)
	r.addition.Launch("gradient sum", device.Binary{Func: device.Add},
		[]plan.Operand{sum, plan.At(r.state.Grads, 0, flat)}, sum)
	if r.addProgram, err = r.addition.Program(); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	if last := r.opts.LastBatch; r.opts.Peers == nil || last == 0 || last > r.opts.MicroBatch() {
		return nil
	}
	r.clearing = plan.NewSequence(r.cache)
	r.closer.add(r.clearing.Close)
	bytes := int(r.sum.Bytes())
	r.clearing.Launch("clear gradient sum", device.Fill{DType: tensor.U8, Shape: tensor.Shape{bytes}}, nil,
		plan.At(r.sum, 0, device.Spec(tensor.U8, bytes)))
	if r.clearProgram, err = r.clearing.Program(); err != nil {
		return fmt.Errorf("replica: clear the gradient sum: %w", err)
	}
	return nil
}
