package plan

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Cache holds compiled kernels. A network repeats the same op on the same shapes, and plans for other batch sizes reuse
// kernels that do not depend on the batch size. A Cache is safe for concurrent use, but only one goroutine at a time
// compiles.
type Cache struct {
	Device  device.Device
	mu      sync.Mutex
	kernels map[string]*compiled
}

type compiled struct {
	kernel device.Kernel
	err    error // nil or ErrUnsupported, which is cached, too
	plans  int   // number of plans that use the kernel
	stays  bool  // kept until Close, because Cache.Compile returned it to a user that is not a plan
}

// NewCache returns an empty cache for dev.
func NewCache(dev device.Device) *Cache {
	return &Cache{Device: dev, kernels: map[string]*compiled{}}
}

// Compile returns the kernel for op and its operands. It calls Device.Compile only at the first request. The cache owns
// the kernel until Close.
func (c *Cache) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.compile(cacheKey(op, in, out), op, in, out)
	if err != nil {
		return nil, err
	}
	have.stays = true
	return have.kernel, have.err
}

// compile returns the entry of a request. The caller holds the lock. The cache does not store the returned error.
func (c *Cache) compile(key string, op device.Op, in, out []device.TensorSpec) (*compiled, error) {
	if have := c.kernels[key]; have != nil {
		return have, nil
	}
	k, err := c.Device.Compile(op, in, out)
	if err != nil && !errors.Is(err, device.ErrUnsupported) {
		return nil, err
	}
	if err != nil {
		k = nil
	}
	have := &compiled{kernel: k, err: err}
	c.kernels[key] = have
	return have, nil
}

// lease holds the kernels that a plan uses.
type lease struct {
	cache *Cache
	keys  map[string]bool
}

func newLease(c *Cache) *lease { return &lease{cache: c, keys: map[string]bool{}} }

// Compile is like Cache.Compile, but the plan holds the kernel until end is called.
func (l *lease) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	c, key := l.cache, cacheKey(op, in, out)
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.compile(key, op, in, out)
	if err != nil {
		return nil, err
	}
	if !l.keys[key] {
		l.keys[key] = true
		have.plans++
	}
	return have.kernel, have.err
}

// end frees the kernels that have no other users.
func (l *lease) end() error {
	c := l.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for key := range l.keys {
		have := c.kernels[key]
		if have == nil {
			continue // the cache is closed
		}
		if have.plans--; have.plans > 0 || have.stays {
			continue
		}
		delete(c.kernels, key)
		if have.kernel != nil {
			errs = append(errs, have.kernel.Close())
		}
	}
	l.keys = map[string]bool{}
	return errors.Join(errs...)
}

func cacheKey(op device.Op, in, out []device.TensorSpec) string {
	return fmt.Sprintf("%s %+v %+v %+v", op.Kind(), op, request(in), request(out))
}

// request returns the properties of specs that belong to a cache key.
func request(specs []device.TensorSpec) []string {
	keys := make([]string, len(specs))
	for i, s := range specs {
		keys[i] = fmt.Sprintf("%v%v/%d/%d", s.DType, s.Shape, s.Layout, s.Bytes)
	}
	return keys
}

// Len returns the number of kernels in the cache.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kernels)
}

// Close frees all kernels. The caller closes the plans that use them first.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for key, k := range c.kernels {
		if k.kernel != nil {
			errs = append(errs, k.kernel.Close())
		}
		delete(c.kernels, key)
	}
	return errors.Join(errs...)
}
