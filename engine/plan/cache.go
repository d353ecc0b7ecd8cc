package plan

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Cache holds compiled kernels: a network repeats the same op on the same shapes, and plans for other batch sizes
// share what does not depend on them. It may be used by several goroutines, one compiling at a time.
type Cache struct {
	Device  device.Device
	mu      sync.Mutex
	kernels map[string]compiled
}

type compiled struct {
	kernel device.Kernel
	err    error // ErrUnsupported is remembered too
}

// NewCache returns an empty cache for dev.
func NewCache(dev device.Device) *Cache {
	return &Cache{Device: dev, kernels: map[string]compiled{}}
}

// Compile is Device.Compile, once for each request. The kernel belongs to the cache.
func (c *Cache) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%s %+v %+v %+v", op.Kind(), op, request(in), request(out))
	if have, ok := c.kernels[key]; ok {
		return have.kernel, have.err
	}
	k, err := c.Device.Compile(op, in, out)
	if err == nil || errors.Is(err, device.ErrUnsupported) {
		c.kernels[key] = compiled{k, err}
	}
	return k, err
}

// request is what distinguishes specs in a cache key.
func request(specs []device.TensorSpec) []string {
	keys := make([]string, len(specs))
	for i, s := range specs {
		keys[i] = fmt.Sprintf("%v%v/%d/%d", s.DType, s.Shape, s.Layout, s.Bytes)
	}
	return keys
}

// Len is the number of kernels held.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kernels)
}

// Close frees all kernels. Plans that use them must be closed before.
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
