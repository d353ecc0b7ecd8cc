package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Communicator is one rank's endpoint; it implements collective.Communicator and collective.Positioner.
type Communicator struct {
	inner        collective.Communicator
	dev          device.Device
	fetch, bring *queue.Queue
	stop         chan struct{} // closed by Close
	looking      sync.WaitGroup

	enqueuing sync.Mutex // all three queues must get their operations in the same order

	mu    sync.Mutex
	turn  sync.Cond   // signals that an operation has ended or err was set
	kept  []*inFlight // kept for reuse
	under []*inFlight // operations that are in flight, in the order of Enqueue
	count uint64      // number of operations that have begun
	err   error       // the first failure
}

// New returns a communicator for memory of dev. It transfers data through inner, a host communicator, and takes
// ownership of inner, even if New fails.
func New(inner collective.Communicator, dev device.Device) (_ *Communicator, err error) {
	c := &Communicator{inner: inner, dev: dev, stop: make(chan struct{})}
	c.turn.L = &c.mu
	out, err := dev.NewStream()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("staged: rank %d: %w", inner.Rank(), err), inner.Close())
	}
	back, err := dev.NewStream()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("staged: rank %d: %w", inner.Rank(), err), out.Close(), inner.Close())
	}
	opts := queue.Options{Rank: inner.Rank(), Size: inner.Size(), OwnThread: true}
	c.fetch = queue.New(&copier{c, out, (*inFlight).carryOut}, opts)
	c.bring = queue.New(&copier{c, back, (*inFlight).carryBack}, opts)
	c.looking.Go(func() { queue.Watch(c.stop, c.look) })
	return c, nil
}

// Rank implements collective.Communicator.
func (c *Communicator) Rank() int { return c.inner.Rank() }

// Size implements collective.Communicator.
func (c *Communicator) Size() int { return c.inner.Size() }

// Position implements collective.Positioner. It returns the position of the inner communicator if that communicator is
// a Positioner.
func (c *Communicator) Position() collective.Progress {
	if p, ok := c.inner.(collective.Positioner); ok {
		return p.Position()
	}
	return collective.Progress{Rank: c.Rank()}
}

// Enqueue implements collective.Communicator.
func (c *Communicator) Enqueue(op collective.Op) error {
	c.enqueuing.Lock()
	defer c.enqueuing.Unlock()
	if err := collective.Check(op, c.Size()); err != nil || seen(op) {
		return c.inner.Enqueue(op) // the operation needs no copies, or is invalid and inner.Enqueue returns the error
	}
	f, err := c.begin(op)
	if err != nil {
		return err
	}
	if err = c.inner.Enqueue(f.travel); err == nil {
		err = errors.Join(c.fetch.Enqueue(&f.out), c.bring.Enqueue(&f.back))
	}
	if err != nil {
		c.look()
		c.fail(fmt.Errorf("collective: rank %d: %s: %w", c.Rank(), collective.Describe(op), err))
		c.end(f)
		return c.Err()
	}
	return nil
}

// seen reports whether the host can access the memory of op directly.
func seen(op collective.Op) bool {
	buffer, _, _ := op.Memory()
	return buffer.Bytes == 0 || buffer.Host() != nil
}

// Sync implements collective.Communicator.
func (c *Communicator) Sync(ctx context.Context) error {
	for _, part := range []collective.Communicator{c.fetch, c.inner, c.bring} {
		if err := part.Sync(ctx); err != nil && part.Err() == nil {
			return err
		}
	}
	return c.Err()
}

// Err implements collective.Communicator.
func (c *Communicator) Err() error {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Abort implements collective.Communicator.
func (c *Communicator) Abort(cause error) {
	c.inner.Abort(cause)
	c.look()
}

// Close implements collective.Communicator.
func (c *Communicator) Close() error {
	c.look()
	select {
	case <-c.stop:
		return fmt.Errorf("collective: rank %d: closed twice", c.Rank())
	default:
		close(c.stop)
	}
	c.looking.Wait()
	faults := []error{c.inner.Close()}
	c.look() // operations that the inner communicator has left unfinished have failed
	faults = append(faults, c.fetch.Close(), c.bring.Close())
	for _, f := range c.kept {
		faults = append(faults, f.pinned.Free())
	}
	c.kept = nil
	return errors.Join(faults...)
}

// look adopts a failure of the inner communicator.
func (c *Communicator) look() {
	if err := c.inner.Err(); err != nil {
		c.fail(err)
	}
}

// fail sets the first failure, and aborts the inner communicator and both copiers. It does nothing if a failure is
// already set.
func (c *Communicator) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		c.turn.Broadcast()
	}
	c.mu.Unlock()
	if first {
		c.inner.Abort(err)
		c.fetch.Fail(err)
		c.bring.Fail(err)
	}
}

// Needs reports whether communicators for a device need this package. They do if the device is not modelled and the
// host cannot access its memory.
func Needs(dev device.Device) (bool, error) {
	if dev.Info().Modelled {
		return false, nil
	}
	b, err := dev.Alloc(64)
	if err != nil {
		return false, err
	}
	return b.Host() == nil, b.Free()
}
