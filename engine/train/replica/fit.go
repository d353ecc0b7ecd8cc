package replica

import (
	"errors"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
)

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
