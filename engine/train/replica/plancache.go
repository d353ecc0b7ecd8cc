package replica

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// planMemory is the memory that plans are bound to.
type planMemory struct {
	arena device.Buffer
	// bytes at the end of the arena for the next batch of any share; 0 if batches are not staged
	staging int64
	state   *plan.State
	sums    *gradsync.Sync // nil for a single rank
}

// cachedPlans is the capacity of a plan cache: the number of shares whose plans it keeps. For a large network, the
// kernels and programs of each share take some megabytes.
const cachedPlans = 32

// scarcePlans is the largest capacity if the address space of the process is limited: plans of the current shares, and
// of the next ones. The account contains the kernels of one set of plans, which reserve tens of megabytes.
const scarcePlans = 2

// planCache compiles the plans of a replica and binds them to memory. It keeps the plans of recently used shares. Its
// methods are safe for concurrent use. It does not communicate with other ranks.
type planCache struct {
	dev          device.Device
	kernels      *plan.Cache
	params       *plan.Params // layout of the parameters, which is the same in all plans
	accumulation int          // number of micro-batches of an optimizer step
	targets      int          // number of targets of a sample
	predicts     bool         // evaluations output logits
	sampled      bool         // the task has a further target for each sample
	classWeights []float64    // Options.ClassWeights
	shorter      []int        // Options.Shorter
	graph        func(pass graphOf) (*graph.Graph, error)
	recompute    Recompute
	ranks        func() (rank, ranks int) // of planKey

	compiling sync.Mutex // serialises compilation and binding; lock it before mu
	memory    planMemory
	binding   bool // the plans that are compiled have to fit into the arena of memory
	closed    bool
	free      int64 // device memory for one set of plans, bytes; 0: unknown
	// hostLoad returns the fraction of the memory of this process that the rank needs with the plans; nil: no limit is
	// known
	hostLoad func(*plans) float64
	// scarce states that the address space of this process is limited
	scarce bool

	mu       sync.Mutex
	cached   map[planKey]*plans
	turn     int64 // number of requests so far
	capacity int   // maximum number of cached plans; the cache can exceed it while plans are held
}

// useMemory sets the memory to which acquire binds plans.
func (c *planCache) useMemory(m planMemory) {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	c.memory = m
}

// acquireBound returns bound plans and holds them. It returns nil if the cache does not contain bound plans.
func (c *planCache) acquireBound(k planKey) *plans {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.cached[k]
	if p == nil || !p.bound {
		return nil
	}
	c.hold(p)
	return p
}

// key returns the key of the plans for n samples and the ranks of the current group.
func (c *planCache) key(n int) planKey {
	rank, ranks := c.ranks()
	return planKey{samples: n, rank: rank, ranks: ranks}
}

// partKey returns the key of the plans for n samples of a micro-batch that has only total samples over all ranks.
func (c *planCache) partKey(n, total int) planKey {
	k := c.key(n)
	if k.ranks > 0 {
		k.total = total
	}
	return k
}

// release ends one hold of acquire or acquireBound.
func (c *planCache) release(p *plans) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.holds--
}

// bind binds plans to the memory of the cache. The caller holds c.compiling.
func (c *planCache) bind(p *plans) error {
	m := c.memory
	have, want := m.arena.Bytes(), p.arenaBytes()
	if want > have && p.total > 0 {
		return fmt.Errorf("replica: %d samples of the last step of an epoch need %d bytes for activations, but only %d are reserved: set data.drop_last = true",
			p.samples, want, have)
	}
	if want > have {
		return fmt.Errorf("replica: a share of %d samples needs %d bytes for activations, but only %d are reserved: raise Peers.MaxShare",
			p.samples, want, have)
	}
	for _, pass := range p.training() {
		if err := pass.bind(c.dev, device.Whole(m.arena), m.state, m.sums); err != nil {
			return err
		}
	}
	if p.eval != nil {
		return p.eval.bind(c.dev, device.Whole(m.arena), m.state, nil)
	}
	return nil
}

// find returns plans, or nil if the cache does not contain them.
func (c *planCache) find(k planKey) *plans {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached[k]
}

// hold adds a holder to p. The caller holds c.mu.
func (c *planCache) hold(p *plans) {
	c.turn++
	p.used = c.turn
	p.holds++
}

// keep marks p as bound, holds it, and evicts the least recently used plans beyond the capacity.
func (c *planCache) keep(p *plans) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.bound = true
	c.hold(p)
	var errs []error
	for len(c.cached) > c.capacity {
		var oldest *plans
		for _, other := range c.cached {
			if other.holds == 0 && (oldest == nil || other.used < oldest.used) {
				oldest = other
			}
		}
		if oldest == nil {
			break
		}
		delete(c.cached, oldest.planKey)
		errs = append(errs, oldest.free())
	}
	return errors.Join(errs...)
}

// drop removes p from the cache and frees it. p must have no holders.
func (c *planCache) drop(p *plans) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cached, p.planKey)
	return p.free()
}

// load returns the memory that the plans need, as a fraction of the limit that they would reach first. The plans fit if
// the fraction is at most 1. If no limit is known, load returns 0.
func (c *planCache) load(p *plans) float64 {
	if c.binding { // fewer samples may need more memory than the arena has, if they recompute fewer layers
		return c.loadOf(p, c.memory.arena.Bytes())
	}
	return c.loadOf(p, c.free)
}

// loadOf does the same as load, for the given number of free bytes of device memory; 0: unknown.
func (c *planCache) loadOf(p *plans, free int64) (load float64) {
	switch {
	case free < 0:
		load = math.Inf(1)
	case free > 0:
		load = float64(p.arenaBytes()) / float64(free)
	}
	if c.hostLoad != nil {
		load = max(load, c.hostLoad(p))
	}
	return load
}

// close waits for a compilation in progress, then frees all plans. After close, the cache compiles no plans.
func (c *planCache) close() error {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, p := range c.cached {
		errs = append(errs, p.free())
	}
	clear(c.cached)
	return errors.Join(errs...)
}
