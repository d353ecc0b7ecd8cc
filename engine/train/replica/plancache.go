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

// plans are the passes of training and evaluation for one share: a number of samples of a micro-batch.
type plans struct {
	planKey
	train   *pass
	shorter []*pass // passes of training for samples of fewer positions, in ascending order; see Options.Shorter
	eval    *pass   // nil if samples is 0
	flops   int64   // FLOPs of one optimizer step on this rank
	staging int64   // bytes of the staging area for the next batch, after the activations; 0 if batches are not staged

	recomputed   int // number of layers whose activations the backward pass recomputes
	recomputable int // largest possible value of recomputed

	// The remaining fields are guarded by planCache.mu.
	bound bool  // the plans have memory and can run
	used  int64 // value of planCache.turn at the last request
	holds int   // number of holders; the cache keeps the plans while it is above 0
}

// planKey distinguishes plans of a replica.
type planKey struct {
	samples     int
	rank, ranks int // this rank and the number of ranks, if the passes exchange statistics; 0 otherwise
	// samples of the micro-batch over all ranks, if the passes exchange statistics and the micro-batch is smaller than
	// the others; 0 otherwise
	total int
}

// passOf returns the training pass for samples of up to the given number of positions; 0 means any number. If several
// passes are suitable, it returns the one with the fewest positions.
func (p *plans) passOf(positions int) *pass {
	for _, s := range p.shorter {
		if positions > 0 && positions <= s.positions {
			return s
		}
	}
	return p.train
}

// training returns all passes of training.
func (p *plans) training() []*pass { return append([]*pass{p.train}, p.shorter...) }

// arenaBytes returns the device memory that the plans need: activations, then the staging area.
func (p *plans) arenaBytes() int64 {
	bytes := p.train.plan.ArenaBytes()
	for _, s := range p.shorter {
		bytes = max(bytes, s.plan.ArenaBytes())
	}
	if p.eval != nil {
		bytes = max(bytes, p.eval.plan.ArenaBytes())
	}
	if p.staging == 0 {
		return bytes
	}
	return roundUp(bytes, stagingUnit) + p.staging
}

// stagingUnit is the alignment of the staging area in bytes. Copies need it to reach full speed.
const stagingUnit = 256

// activationBytes returns the device memory of arenaBytes without the staging area.
func (p *plans) activationBytes() int64 { return p.arenaBytes() - p.staging }

// stagingAt returns the staging area. It is at the end of the arena, after the activations of all plans. The reason is
// that the batch for these plans may arrive while the plans for the last step of an epoch still compute.
func (p *plans) stagingAt(arena device.Buffer) device.Region {
	at := arena.Bytes() - p.staging
	return device.Region{Buffer: arena, Offset: at - at%stagingUnit, Bytes: p.staging}
}

// free frees the plans, their programs, and the kernels that no other plan uses.
func (p *plans) free() error {
	var err error
	for _, pass := range p.training() {
		err = errors.Join(err, pass.free())
	}
	if p.eval != nil {
		err = errors.Join(err, p.eval.free())
	}
	return err
}

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

// acquire returns the plans for n samples of a whole micro-batch; see acquireKey.
func (c *planCache) acquire(n int) (*plans, error) { return c.acquireKey(c.key(n)) }

// acquireKey returns plans, bound and held. If the cache does not contain them, it compiles them, and evicts the least
// recently used plans beyond the capacity. For cached plans, it does not wait for a compilation in progress.
func (c *planCache) acquireKey(k planKey) (*plans, error) {
	if p := c.acquireBound(k); p != nil {
		return p, nil
	}
	c.compiling.Lock()
	defer c.compiling.Unlock()
	if p := c.acquireBound(k); p != nil { // another goroutine compiled them while this one waited
		return p, nil
	}
	c.binding = true
	p, err := c.planned(k)
	c.binding = false
	if err != nil {
		return nil, err
	}
	if err := c.bind(p); err != nil {
		return nil, errors.Join(err, c.drop(p))
	}
	return p, c.keep(p)
}

// acquireBound returns bound plans and holds them. It returns nil if the cache does not contain
// bound plans.
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

// compiled returns the plans for n samples, which may not be bound yet. The plans stay in the cache.
func (c *planCache) compiled(n int) (*plans, error) {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	return c.planned(c.key(n))
}

// inspect compiles plans for n samples, calls f with them, and frees them. The plans do not enter the cache.
func (c *planCache) inspect(n int, f func(*plans)) error {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	p, err := c.compile(c.key(n))
	if err != nil {
		return err
	}
	f(p)
	return p.free()
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

// planned returns plans, and compiles them if necessary. The caller holds c.compiling.
func (c *planCache) planned(k planKey) (*plans, error) {
	if p := c.find(k); p != nil {
		return p, nil
	}
	p, err := c.compile(k)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached[p.planKey] = p
	return p, nil
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

// fit returns the largest share, at most limit, whose plans fit into free bytes of device memory and into the memory of
// this process. If limit itself does not fit, the result is a multiple of unit, or 0. The result need is the device
// memory, in bytes, of the plans for limit samples. If these plans fit, the cache keeps them.
func (c *planCache) fit(limit, unit int, free int64) (samples int, need int64, err error) {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	p, err := c.planned(c.key(limit))
	if err != nil {
		return 0, 0, err
	}
	need = p.arenaBytes()
	load := c.loadOf(p, free)
	if load <= 1 {
		return limit, need, nil
	}
	if err := c.drop(p); err != nil {
		return 0, need, err
	}
	samples, err = c.search(limit, unit, load, free)
	return samples, need, err
}

// fitFromBelow returns the same result as fit, but searches upwards, because limit may be far above the result. It
// compiles no plans for more than twice the result. The cache keeps none of these plans.
func (c *planCache) fitFromBelow(limit, unit int, free int64) (int, error) {
	c.compiling.Lock()
	defer c.compiling.Unlock()
	limit -= limit % unit
	for n := unit; ; n *= 2 {
		n = max(min(n, limit), unit)
		load, err := c.loadFor(n, free)
		if err != nil {
			return 0, err
		}
		if load > 1 {
			return c.search(n, unit, load, free)
		}
		if n >= limit {
			return min(n, limit), nil
		}
	}
}

// loadFor returns loadOf for the plans for n samples.
//
// If the address space is limited, kernels for many samples may fail before the account of their plans is known. Such
// plans do not fit.
func (c *planCache) loadFor(n int, free int64) (float64, error) {
	p, err := c.compile(c.key(n))
	if c.scarce && (errors.Is(err, device.ErrDevice) || errors.Is(err, device.ErrOutOfMemory)) && n > 1 {
		return math.Inf(1), nil
	}
	if err != nil {
		return 0, err
	}
	return c.loadOf(p, free), p.free()
}

// search returns the largest multiple of unit below limit whose plans fit, or 0. The parameter load is the load of the
// plans for limit samples, which do not fit. The memory of plans grows almost linearly with the samples. Each guess is
// therefore a linear extrapolation from the previous two points.
func (c *planCache) search(limit, unit int, load float64, free int64) (int, error) {
	low, high := 0, (limit+unit-1)/unit // in units; low fits, high does not
	x0, y0, x1, y1 := 0.0, 0.0, float64(limit), load
	for tries := 0; high-low > 1; tries++ {
		guess := (low + high) / 2
		slope := (y1 - y0) / (x1 - x0)
		if slope > 0 && !math.IsInf(slope, 1) && tries < 6 { // otherwise bisection
			guess = int((x0 + (1-y0)/slope) / float64(unit))
		}
		guess = min(max(guess, low+1), high-1)
		load, err := c.loadFor(guess*unit, free)
		if err != nil {
			return 0, err
		}
		if load <= 1 {
			low = guess
		} else {
			high = guess
		}
		x0, y0, x1, y1 = x1, y1, float64(guess*unit), load
	}
	return low * unit, nil
}
