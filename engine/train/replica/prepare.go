package replica

import (
	"runtime"

	"github.com/hetero-train/hetero-train/engine/train/shares"
)

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
