package gradsync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Group is the membership of a process in a process group. A nil Group is a run of one rank.
//
// Grads transfers gradients, reports and weights. Stats transfers the exchanges within passes, so an exchange never
// waits for a gradient bucket.
type Group struct {
	Grads, Stats collective.Communicator

	rows []*Rows // their memory depends on the number of ranks
}

// Change replaces the communicators of the group, because ranks have joined or left. The ranks of the new group must
// call it between two steps, when no exchange is in flight. Ranks that leave do not call it. The caller then sets the
// shares of the new ranks (shares.Owner.Regroup).
func (g *Group) Change(grads, stats collective.Communicator) error {
	g.Grads, g.Stats = grads, stats
	for _, r := range g.rows {
		if err := errors.Join(r.host.Free(), r.allocate()); err != nil {
			return err
		}
	}
	return nil
}

// Rank returns the number of this rank.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.Grads.Rank()
}

// Size returns the number of ranks.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return g.Grads.Size()
}

// Abort ends the run on the other ranks. The errors that they return contain cause.
func (g *Group) Abort(cause error) {
	if g != nil {
		g.Grads.Abort(cause)
		g.Stats.Abort(cause)
	}
}

// Drain waits until no operation of a failed communicator accesses memory.
func (g *Group) Drain() {
	if g != nil {
		g.Grads.Sync(context.Background()) // its error is already known
		g.Stats.Sync(context.Background())
	}
}

// Barrier waits until all ranks have called it.
func (g *Group) Barrier(ctx context.Context, name string) error {
	if g == nil {
		return nil
	}
	if err := g.Grads.Enqueue(collective.Barrier{Name: name}); err != nil {
		return err
	}
	return g.Grads.Sync(ctx)
}

// Gather returns the bytes that each rank passes, by rank. All ranks must pass the same number of bytes.
func (g *Group) Gather(ctx context.Context, dev device.Device, name string, own []byte) ([][]byte, error) {
	return gather(ctx, g.Grads, dev, name, own)
}

// Rows is host memory with a row of bytes for each rank. An exchange sends this rank's row and receives all others.
// Rows allocates its memory once, so it suits exchanges that repeat.
type Rows struct {
	group  *Group
	dev    device.Device
	name   string
	host   device.Buffer
	stride int64
	op     collective.Op
}

// NewRows allocates one row of stride bytes for each rank of a group.
func (g *Group) NewRows(dev device.Device, name string, stride int64) (*Rows, error) {
	r := &Rows{group: g, dev: dev, name: name, stride: stride}
	if err := r.allocate(); err != nil {
		return nil, err
	}
	g.rows = append(g.rows, r)
	return r, nil
}

// allocate allocates a row for each rank of the group.
func (r *Rows) allocate() (err error) {
	size := r.group.Size()
	if r.host, err = r.dev.AllocHost(r.stride * int64(size)); err != nil {
		return fmt.Errorf("%s of %d ranks: %w", r.name, size, err)
	}
	counts := slices.Repeat([]int64{r.stride}, size)
	r.op = collective.AllGather{Name: r.name, Buffer: device.Whole(r.host), DType: tensor.U8, Counts: counts}
	return nil
}

// All returns the rows of all ranks.
func (r *Rows) All() []byte { return r.host.Host()[:r.stride*int64(r.group.Size())] }

// Row returns the row of a rank.
func (r *Rows) Row(rank int) []byte { return r.All()[int64(rank)*r.stride:][:r.stride] }

// Own returns the row of this rank.
func (r *Rows) Own() []byte { return r.Row(r.group.Rank()) }

// Op returns the exchange as an operation, for Sync.Finish.
func (r *Rows) Op() collective.Op { return r.op }

// Exchange waits until the rows of all ranks have arrived.
func (r *Rows) Exchange(ctx context.Context) error {
	if err := r.group.Grads.Enqueue(r.op); err != nil {
		return err
	}
	return r.group.Grads.Sync(ctx)
}

// Close frees the memory. No exchange may be in flight.
func (r *Rows) Close() error {
	r.group.rows = slices.DeleteFunc(r.group.rows, func(other *Rows) bool { return other == r })
	return r.host.Free()
}
