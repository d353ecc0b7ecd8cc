package replica

import (
	"context"
	"fmt"
	"runtime"

	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// SetSamples sets the number of samples of each micro-batch from the next Step on. It is only for a replica without
// peers. The parameter n must not exceed the micro-batch of Options, and must be a multiple of the group size of batch
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

// adopt switches the plans and the sums over ranks to the current shares. It compiles plans for this rank's share only
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
	return r.preparePart()
}

// SwitchShares makes the next shares the current ones, from the next Step on. The plans for this rank's next share must
// be ready. If a batch is staged, it has the samples of the old shares, and the caller discards it.
func (r *Replica) SwitchShares() error { return r.shares.Switch(r.adopt) }

// Regroup follows a change of the group (gradsync.Group.Change). From the next Step on, the replica trains with the
// ranks of the changed group, all of which must call Regroup. The parameter samples contains their shares. If a batch
// is staged, the caller discards it.
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
	plans  []*plans // held in the cache; nil until they are ready
	coming chan planned
}

// planned is the result of planning in the background.
type planned struct {
	plans []*plans
	err   error
}

// Prepare starts to compile this rank's plans for the shares of all ranks: for whole micro-batches and for the smaller
// one of the last step of an epoch. If the cache already contains them, they are ready immediately.
func (r *Replica) Prepare(samples []int) shares.Plans {
	rank := r.group.Rank()
	keys := []planKey{r.plans.key(samples[rank])}
	if total := r.partSamples(); total > 0 {
		keys = append(keys, r.plans.partKey(shares.Within(samples, total)[rank], total))
	}
	return r.plans.prepare(keys)
}

// prepare starts to compile the plans of keys; see Prepare.
func (c *planCache) prepare(keys []planKey) *prepared {
	p := &prepared{cache: c}
	var have []*plans
	for _, k := range keys {
		if one := c.acquireBound(k); one != nil {
			have = append(have, one)
		}
	}
	if len(have) == len(keys) {
		p.plans = have
		return p
	}
	c.releaseAll(have)
	p.coming = make(chan planned, 1)
	go func() {
		// never unlocked, so the thread and the device's per-thread resources end with the goroutine
		runtime.LockOSThread()
		var all []*plans
		for _, k := range keys {
			one, err := c.acquireKey(k)
			if err != nil {
				c.releaseAll(all)
				p.coming <- planned{err: err}
				return
			}
			all = append(all, one)
		}
		p.coming <- planned{plans: all}
	}()
	return p
}

func (c *planCache) releaseAll(all []*plans) {
	for _, p := range all {
		c.release(p)
	}
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
func (p *prepared) Release() { p.cache.releaseAll(p.plans) }
