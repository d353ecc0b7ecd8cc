package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// Shares returns the owner of the shares of all ranks.
func (r *Replica) Shares() *shares.Owner { return r.shares }

// Group returns the group of the ranks that train together, or nil for a single rank.
func (r *Replica) Group() *gradsync.Group { return r.group }

// settleShares finds the largest share of each rank and chooses the first shares. Parameters, moments and buffers for
// sums over ranks are already allocated. Activations may use the remaining memory.
func (r *Replica) settleShares() error {
	p, micro := r.opts.Peers, r.opts.MicroBatch()
	if p == nil {
		r.shares = shares.Alone(micro, r.opts.wholeGroup())
		return r.refuse(micro)
	}
	own, err := r.limit(p.most(micro))
	if err != nil {
		return err
	}
	limits, err := r.gather(context.Background(), own)
	if err != nil {
		return fmt.Errorf("gather the limits of ranks: %w", err)
	}
	r.shares = shares.New(r.opts.rules(), limits)
	first := p.Shares
	if p.Divide != nil {
		if first, err = p.Divide(slices.Clone(limits)); err != nil {
			return fmt.Errorf("replica: shares of a micro-batch of %d samples: %w", micro, err)
		}
		decided, err := r.gather(context.Background(), int(shares.Hash(first)))
		if err != nil {
			return fmt.Errorf("first shares of ranks: %w", err)
		}
		for rank, hash := range decided {
			if hash != decided[0] {
				return shares.Disagreement(rank)
			}
		}
	}
	return r.shares.Set(first)
}

// refuse returns a *MemoryError if the micro-batch of a single rank does not fit into the memory of this process or of
// the device. Nothing of the size of the micro-batch is allocated yet.
func (r *Replica) refuse(micro int) error {
	if r.opts.Planning || r.plans.hostLoad == nil {
		return nil // the device refuses the allocation
	}
	fit, need, err := r.plans.fit(micro, r.opts.wholeGroup(), r.plans.free)
	if err != nil || fit >= micro {
		return err
	}
	return r.tooLarge(micro, fit, need, max(r.plans.free, 0))
}

// tooLarge returns the error of a share that does not fit. need are the bytes of its activations, free those that the
// device has for them.
func (r *Replica) tooLarge(share, fit int, need, free int64) error {
	used, _ := r.dev.Memory()
	e := &MemoryError{Samples: share, Fit: fit, NeedBytes: need, HeldBytes: used, FreeBytes: free,
		Err: device.ErrOutOfMemory}
	if r.plans.hostLoad == nil {
		return e
	}
	f, err := r.Footprint(share)
	if err != nil {
		return err
	}
	if e.Account = &f.Account; e.Account.DeviceLimit == 0 && free > 0 {
		e.Account.DeviceLimit = free + r.fixedBytes()
	}
	return e
}

// rules returns the rules that the shares of several ranks must satisfy.
func (o Options) rules() shares.Rules {
	g := o.Peers.Group
	return shares.Rules{Rank: g.Rank(), Ranks: g.Size(), Batch: o.MicroBatch(), Unit: o.wholeGroup()}
}

// first returns this rank's first share, if Divide does not compute it.
func (p *Peers) first() int { return p.Shares[p.Group.Rank()] }

// most returns the largest share that this rank may get, without regard to memory.
func (p *Peers) most(micro int) int {
	switch {
	case p.MaxShare > 0 && p.Divide == nil:
		return max(min(p.MaxShare, micro), p.first())
	case p.MaxShare > 0:
		return min(p.MaxShare, micro)
	case p.Divide == nil:
		return p.first()
	}
	return micro
}

// memoryLeft returns the number of bytes available for activations. It is negative if the other allocations exceed
// the limit. known is false if neither the device nor the options state a limit.
func (r *Replica) memoryLeft() (bytes int64, known bool) {
	used, _ := r.dev.Memory()
	info, total := r.dev.Info(), int64(0)
	if r.opts.Peers != nil {
		total = r.opts.Peers.MemoryBytes
	} else if info.FreeBytes > 0 {
		total = info.FreeBytes
	}
	if has := info.MemoryBytes; total == 0 || has > 0 && has < total {
		total = has
	}
	return total - used, total > 0
}

// limit returns the largest share, at most most, whose activations fit into memory. It compiles plans to find out.
// The result is most or a multiple of a group of batch normalisation. If the first share is fixed and does not fit,
// limit returns a *MemoryError.
func (r *Replica) limit(most int) (int, error) {
	free, known := r.memoryLeft()
	p := r.opts.Peers
	unit := r.opts.wholeGroup()
	if p.Divide != nil && most < r.opts.MicroBatch() {
		most -= most % unit
	}
	if most == 0 || r.opts.Planning || !known && r.plans.hostLoad == nil {
		return most, nil
	}
	if known && free == 0 {
		free = -1
	}
	fit, need, err := r.plans.fit(most, unit, free)
	if err != nil || p.Divide != nil {
		return fit, err
	}
	if share := p.first(); share > fit {
		return 0, r.tooLarge(share, fit, need*int64(share)/int64(most), free)
	}
	return fit, nil
}

// wholeGroup returns the unit of shares: the number of samples of a group of batch normalisation, or 1.
func (o Options) wholeGroup() int {
	if o.GhostGroup > 0 && (o.Peers == nil || !o.Peers.SyncNorm) {
		return o.GhostGroup
	}
	return 1
}

// gather returns the numbers own of all ranks.
func (r *Replica) gather(ctx context.Context, own int) ([]int, error) {
	rows, err := r.group.Gather(ctx, r.dev, "limits", binary.LittleEndian.AppendUint64(nil, uint64(own)))
	all := make([]int, len(rows))
	for i, row := range rows {
		all[i] = int(binary.LittleEndian.Uint64(row))
	}
	return all, err
}
