//go:build cgo && linux

package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Available returns nil if NCCL can be used, otherwise an [UnavailableError].
func Available() error {
	_, _, err := Loaded()
	return err
}

// Loaded returns the version of NCCL and the path of its library. The first call opens the library, so call
// [Settings.Apply] first.
func Loaded() (version Version, path string, err error) {
	lib, err := openLibrary("")
	if err != nil {
		return 0, "", UnavailableError(err.Error() + "; the build needs a CUDA toolkit with NCCL: " +
			nativelib.Remedy("make cuda-toolchain && make CUDA=on", "docs/gpu.md"))
	}
	if version, path, err = lib.facts(); err != nil {
		return 0, "", UnavailableError(err.Error())
	}
	return version, path, nil
}

// Communicator is one rank's endpoint; it implements collective.Communicator and collective.Positioner.
type Communicator struct {
	*queue.Queue
	transport *transport
}

// connectTime limits the time to join if the context has no deadline.
const connectTime = 5 * time.Minute

// controlOps is the number of operations that joining runs on Control.
const controlOps = 3

// Connect joins all ranks, and returns when all have joined. All ranks must call it. It fails when ctx ends or Control
// fails. If these ranks cannot have an NCCL communicator, it returns the same ErrUnusable on all ranks.
func Connect(ctx context.Context, c Config) (_ *Communicator, err error) {
	dev, err := c.check()
	if err != nil {
		if c.Control != nil {
			err = errors.Join(err, c.Control.Close())
		}
		return nil, fmt.Errorf("nccl: %w", err)
	}
	rank, size := c.Control.Rank(), c.Control.Size()
	e, err := join(ctx, c, dev)
	if err != nil {
		if failed := c.Control.Err(); failed != nil {
			err = failed // this error names the rank that failed first
		}
		if !errors.Is(err, ErrUnusable) { // every rank detects ErrUnusable itself
			c.Control.Abort(err)
		}
		return nil, errors.Join(fmt.Errorf("nccl: rank %d of %d: join: %w", rank, size, err), c.Control.Close())
	}
	t := newTransport(c, e)
	t.queue = queue.New(t, queue.Options{Rank: rank, Size: size, OwnThread: true})
	t.background.Go(func() { queue.Watch(t.ended, t.look) })
	return &Communicator{t.queue, t}, nil
}

// join creates this rank's endpoint.
func join(ctx context.Context, c Config, dev device.AddressedDevice) (*end, error) {
	lib, own := c.introduce(dev)
	all, err := meet(ctx, c.Control, own)
	if err == nil {
		err = agree(all)
	}
	if err != nil {
		return nil, err
	}
	if c.ShareGPU {
		if err := shareGPU(own.Version, c.Control.Rank()); err != nil {
			return nil, err
		}
	}
	if err := connectEarly(); err != nil {
		return nil, err
	}
	id := newMemory(idBytes)
	if c.Control.Rank() == 0 {
		if err := lib.uniqueID(id.bytes); err != nil {
			return nil, err
		}
	}
	if err := perform(ctx, c.Control, collective.Broadcast{Name: "nccl id", Buffer: device.Whole(id)}); err != nil {
		return nil, err
	}
	e, err := lib.create(c.Control.Rank(), c.Control.Size(), dev.Index(), c.MinCTAs, c.MaxCTAs, id.bytes)
	if err != nil {
		return nil, err
	}
	if err := e.joinAll(ctx, c.Control); err != nil {
		return nil, errors.Join(err, e.close(false))
	}
	return e, nil
}

// introduce opens the library, and returns the message that describes this rank to the other ranks.
func (c Config) introduce(dev device.AddressedDevice) (lib *library, own hello) {
	own = hello{Host: c.Host, ShareGPU: c.ShareGPU}
	lib, err := openLibrary(c.library)
	if err == nil {
		own.Version, own.Path, err = lib.facts()
	}
	if err == nil {
		own.GPU, err = lib.busID(dev.Index())
	}
	if err != nil {
		own.Fault = err.Error()
	}
	if c.pretend != nil {
		c.pretend(&own)
	}
	return lib, own
}

// joinAll returns when all ranks have joined, and when each rank has the message that all have joined.
func (e *end) joinAll(ctx context.Context, control collective.Communicator) error {
	limit := connectTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	joined := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		queue.Watch(joined, func() {
			if ctx.Err() != nil || control.Err() != nil {
				e.stop()
			}
		})
	})
	s, err := e.connect(max(limit, time.Millisecond))
	close(joined)
	watching.Wait()
	switch {
	case s == timedOut || ctx.Err() != nil:
		return fmt.Errorf("not all ranks joined within %v: %w", limit.Round(time.Millisecond), context.DeadlineExceeded)
	case err != nil:
		return err
	}
	return perform(ctx, control, collective.Barrier{Name: "nccl joined"})
}

// connectEarly makes NCCL connect all peers when ranks join, unless the user has set the variable. Since version 2.22,
// NCCL by default connects peers in the first operation of each kind, and allocates memory in this operation. The
// allocation may wait until all streams of the GPU are idle. If a stream is blocked until this operation ends, the
// result is a deadlock.
func connectEarly() error {
	const name = "NCCL_RUNTIME_CONNECT"
	if os.Getenv(name) != "" {
		return nil
	}
	return os.Setenv(name, "0")
}

// shareGPU lets NCCL use one GPU for several ranks. Older versions do not support this. With such a version, the ranks
// pretend to be on different machines, and communicate through the network.
func shareGPU(v Version, rank int) error {
	if v.Has(MultiRankGPU) {
		return os.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return os.Setenv("NCCL_HOSTID", fmt.Sprintf("%s-%d", host, rank))
}
