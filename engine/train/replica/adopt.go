package replica

import (
	"context"
	"fmt"
	"runtime"

	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// SetSamples sets the number of samples of each micro-batch from the next Step on. It is only for a replica without
// peers. n is at most the number of samples of a micro-batch of Options, and consists of whole groups of batch
// normalisation. From then on, the caller passes batches of n samples to Step.
func (r *Replica) SetSamples(n int) error {
	if err := r.shares.SetSamples(n); err != nil {
		return err
	}
	if err := r.Discard(); err != nil {
		return err
	}
	return r.adopt()
}

// adopt makes the plans and the sums over ranks follow the current shares. It compiles plans for this rank's share only
// if the cache does not contain them.
func (r *Replica) adopt() error {
	p, err := r.plans.acquire(r.shares.Own())
	if err != nil {
		return err
	}
	if r.sums != nil {
		if err := r.sums.SetShares(r.shares.All()); err != nil {
			r.plans.release(p)
			return err
		}
	}
	r.releasePart()
	r.plans.release(r.now)
	r.now = p
	return nil
}

// SwitchShares makes the next shares the current ones, from the next Step on. The plans for this rank's next share are
// ready. If a batch is staged, it has the samples of the old shares, and the caller discards it.
func (r *Replica) SwitchShares() error { return r.shares.Switch(r.adopt) }

// Regroup continues with other ranks, from the next Step on, after a change of the group (gradsync.Group.Change).
// samples are the shares of its ranks, all of which call Regroup. If a batch is staged, the caller discards it.
func (r *Replica) Regroup(ctx context.Context, samples []int) error {
	limits, err := r.gather(ctx, r.shares.Most())
	if err != nil {
		return fmt.Errorf("gather the limits of ranks: %w", err)
	}
	if err := r.shares.Regroup(r.group.Rank(), limits, samples); err != nil {
		return err
	}
	return r.adopt()
}

// prepared are plans that compile in the background, while training continues. They implement shares.Plans.
type prepared struct {
	cache  *planCache
	plans  *plans // held in the cache; nil until they are ready
	coming chan planned
}

// planned is the result of planning in the background.
type planned struct {
	plans *plans
	err   error
}

// Prepare starts to compile plans for n samples. If the cache already contains them, they are ready at once.
func (r *Replica) Prepare(n int) shares.Plans {
	p := &prepared{cache: r.plans, plans: r.plans.acquireBound(r.plans.key(n))}
	if p.plans != nil {
		return p
	}
	p.coming = make(chan planned, 1)
	go func() {
		// never unlocked, so the thread and the device's per-thread resources end with the goroutine
		runtime.LockOSThread()
		plans, err := p.cache.acquire(n)
		p.coming <- planned{plans, err}
	}()
	return p
}

// Ready implements shares.Plans.
func (p *prepared) Ready() (bool, error) {
	if p.plans != nil {
		return true, nil
	}
	select {
	case got := <-p.coming:
		p.plans = got.plans
		return got.err == nil, got.err
	default:
		return false, nil
	}
}

// Release implements shares.Plans.
func (p *prepared) Release() { p.cache.release(p.plans) }
