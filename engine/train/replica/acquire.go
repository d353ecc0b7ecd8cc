package replica

import "errors"

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
