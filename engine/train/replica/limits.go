package replica

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// settleShares finds the largest share of each rank and chooses the first shares. Parameters, moments and buffers for
// sums over ranks are already allocated. Activations may use the remaining memory.
func (r *Replica) settleShares() error {
	p, micro := r.opts.Peers, r.opts.MicroBatch()
	if p == nil {
		r.shares = shares.Alone(micro, r.opts.wholeGroup())
		return r.refuse(micro)
	}
	if err := r.dividePool(); err != nil {
		return err
	}
	limits, err := r.limits(micro)
	if err != nil {
		return err
	}
	if limits, err = r.leaveRoom(limits); err != nil {
		return err
	}
	r.shares = shares.New(r.opts.rules(), limits)
	first := p.Shares
	if p.Divide != nil {
		if first, err = p.Divide(slices.Clone(limits)); err != nil {
			return r.withoutPlace(limits, fmt.Errorf("replica: shares of a micro-batch of %d samples: %w", micro, err))
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
// the device. It is called before memory for the micro-batch is allocated.
func (r *Replica) refuse(micro int) error {
	if r.opts.Planning || r.plans.hostLoad == nil {
		return nil // the device refuses the allocation
	}
	fit, need, err := r.plans.fit(micro, r.opts.wholeGroup(), r.plans.free)
	if err != nil || fit >= micro {
		return err
	}
	refused := r.tooLarge(micro, fit, need, max(r.plans.free, 0))
	if r.limit.Hard > 0 { // the machine may swap
		r.exceed()
		if more, _, err := r.plans.fit(micro, r.opts.wholeGroup(), r.plans.free); err != nil || more >= micro {
			return err
		}
	}
	return refused
}

// exceed lets this rank use memory up to the hard limit of its process. The run warns of it.
func (r *Replica) exceed() { r.limit.Bytes, r.limit.Hard = r.limit.Hard, 0 }

// limits returns the largest share of each rank. If the ranks cannot hold the micro-batch otherwise, they may exceed
// the memory that is available now.
func (r *Replica) limits(micro int) ([]int, error) {
	p := r.opts.Peers
	for {
		own, err := r.mostThatFits(p.most(micro))
		if err != nil {
			return nil, err
		}
		may := 0
		if r.limit.Hard > 0 && r.plans.hostLoad != nil && !r.opts.Planning {
			may = 1
		}
		rows, err := r.gatherNumbers(context.Background(), own, may)
		if err != nil {
			return nil, fmt.Errorf("gather the limits of ranks: %w", err)
		}
		limits, sum, more := make([]int, len(rows)), 0, 0
		for rank, row := range rows {
			limits[rank] = row[0]
			sum, more = sum+row[0], more+row[1]
		}
		if sum >= micro || more == 0 || p.Divide == nil {
			return limits, nil
		}
		if may == 1 {
			r.exceed()
		}
	}
}

// withoutPlace adds this rank's account to an error which states that the ranks cannot hold a micro-batch. The account
// is for a share with which the ranks hold the micro-batch, if each rank adds an equal part of the missing samples.
func (r *Replica) withoutPlace(limits []int, err error) error {
	micro, sum := r.opts.MicroBatch(), 0
	for _, n := range limits {
		sum += n
	}
	if sum >= micro {
		return err
	}
	if r.plans.hostLoad == nil {
		return &MemoryError{Samples: micro, Fit: sum, Err: err, Together: true}
	}
	own, unit := limits[r.group.Rank()], r.opts.wholeGroup()
	more := (micro - sum + len(limits) - 1) / len(limits)
	more = max((more+unit-1)/unit*unit+coarseStep(own+more, unit), 2*coarseStep(own, unit)) // limits are rounded down
	f, accountErr := r.Footprint(own + more)
	if accountErr != nil {
		return errors.Join(err, accountErr)
	}
	fit, fitErr := r.promised(max(own, unit), own)
	if fitErr != nil {
		return errors.Join(err, fitErr)
	}
	e := &MemoryError{Samples: f.Samples, Fit: fit, Err: err, Together: true}
	if !f.Account.Fits() {
		e.Account = &f.Account
	}
	return e
}

// heapRoom is memory that a rank keeps for Go's heap, if it can, so that garbage is collected seldom.
const heapRoom = 64 << 20

// leaveRoom lowers the limit of a rank to keep memory for data that makes training faster: the copy of checkpoints, the
// cache of images and Go's heap. Otherwise, a rank whose largest share just fits would have no memory for such data,
// even with a small share. A rank keeps at least one and a half times its first share.
func (r *Replica) leaveRoom(limits []int) ([]int, error) {
	p, h := r.opts.Peers, r.opts.Host
	if p.Preview == nil || r.opts.Planning {
		return limits, nil
	}
	first, err := p.Preview(slices.Clone(limits))
	if err != nil {
		return limits, nil // Divide fails, too
	}
	rank, unit := r.group.Rank(), r.opts.wholeGroup()
	own := limits[rank]
	if least := max((first[rank]*3/2+unit-1)/unit, 1) * unit; r.plans.hostLoad != nil && least < own {
		wish := memory.Sum(h.Optional) + heapRoom
		if h.Copies {
			wish += r.copyBytes()
		}
		largest, err := r.plans.compiled(own) // the cache usually has them
		if err != nil {
			return nil, err
		}
		if left, _ := r.account(largest).Left(); left < wish {
			if own, err = r.roomier(least, own, wish-left, wish); err != nil {
				return nil, err
			}
		}
	}
	limits, err = r.gather(context.Background(), max(own, first[rank]))
	if err != nil {
		return nil, fmt.Errorf("gather the limits of ranks: %w", err)
	}
	return limits, nil
}

// roomier returns a share between low and high with which at least wish bytes remain free, or low if there is no such
// share. With the share high, deficit bytes less than wish remain free.
func (r *Replica) roomier(low, high int, deficit, wish int64) (int, error) {
	var left int64 // for the share low
	err := r.plans.inspect(low, func(p *plans) { left, _ = r.account(p).Left() })
	if err != nil || left <= wish {
		return low, err
	}
	unit := r.opts.wholeGroup()
	more := float64(high-low) * float64(left-wish) / float64(left-wish+deficit) // memory grows linearly with samples
	return coarse(low+int(more)/unit*unit, high, unit), nil
}

// dividePool divides the memory of a pool among its ranks in accordance with the needs of their first shares, if these
// are known. With equal parts, a large share would be refused even if other ranks leave enough memory.
func (r *Replica) dividePool() error {
	p, h := r.opts.Peers, r.opts.Host
	if len(p.Shares) == 0 || r.opts.Planning {
		return nil
	}
	var need, part, pool int64
	if r.plans.hostLoad != nil && h.Pool != "" {
		load, recompute := r.plans.hostLoad, r.plans.recompute
		if recompute == RecomputeShort { // the memory that the rank would use if it had enough
			r.plans.hostLoad, r.plans.recompute = nil, RecomputeNever
		}
		err := r.plans.inspect(p.first(), func(p *plans) { need = r.account(p).HostBytes() - r.spread() })
		if r.plans.hostLoad, r.plans.recompute = load, recompute; err != nil {
			return err
		}
		hash := fnv.New64a()
		hash.Write([]byte(h.Pool))
		part, pool = r.limit.Bytes, int64(hash.Sum64()>>1)+1
	}
	rows, err := r.gatherNumbers(context.Background(), int(need), int(part), int(pool))
	if err != nil {
		return fmt.Errorf("gather the memory of ranks: %w", err)
	}
	if pool == 0 {
		return nil
	}
	var needs []int64
	own, whole := 0, int64(0)
	for rank, row := range rows {
		if int64(row[2]) != pool {
			continue
		}
		if rank == r.group.Rank() {
			own = len(needs)
		}
		needs, whole = append(needs, int64(row[0])), whole+int64(row[1])
	}
	more := partsOf(whole, needs)[own] - r.limit.Bytes
	if r.limit.Bytes += more; r.limit.Hard > 0 {
		r.limit.Hard += more
	}
	return nil
}

// partsOf divides memory in accordance with needs. If memory remains, it is divided equally. If the needs exceed the
// memory, each need that is at most an equal part is met in full. The other needs get parts of the remaining memory in
// proportion.
func partsOf(whole int64, needs []int64) []int64 {
	parts := make([]int64, len(needs))
	equal := whole / int64(len(needs))
	var sum, small, large int64
	for _, need := range needs {
		if sum += need; need <= equal {
			small += need
		} else {
			large += need
		}
	}
	for i, need := range needs {
		switch {
		case sum <= whole:
			parts[i] = need + (whole-sum)/int64(len(needs))
		case need <= equal:
			parts[i] = need
		default:
			parts[i] = int64(float64(whole-small) * float64(need) / float64(large))
		}
	}
	return parts
}

// tooLarge returns the error of a share that does not fit. The parameter need is the memory of its activations, and
// free is the memory that the device has for them, both in bytes.
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
	if e.Fit, err = r.promised(share, fit); err != nil {
		return err
	}
	if e.Fit == 0 && fit > 0 {
		e.Fit = UnknownFit // samples fit into this process, but perhaps not into the next one
	}
	if e.Account = &f.Account; e.Account.DeviceLimit == 0 && free > 0 {
		e.Account.DeviceLimit = free + r.fixedBytes()
	}
	return e
}

// promised returns the number of samples that a refusal of share samples names. The next run must accept this number.
// It is smaller than fit if the next process may reserve more addresses.
func (r *Replica) promised(share, fit int) (int, error) {
	spread := r.limit.Spread()
	if spread == 0 || fit == 0 {
		return fit, nil
	}
	limit := r.limit.Bytes
	defer func() { r.limit.Bytes = limit }()
	r.limit.Bytes = max(limit-spread, 1)
	promised, _, err := r.plans.fit(share, r.opts.wholeGroup(), r.plans.free)
	return min(promised, fit), err
}

// memoryLeft returns the number of bytes available for activations. It is negative if the other allocations exceed the
// limit. The result known is false if neither the device nor the options state a limit.
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

// mostThatFits returns the largest share, at most limit, whose activations fit into memory. It compiles plans to find
// out. If limit itself does not fit, the result is a multiple of a group of batch normalisation. If the first share is
// fixed and does not fit, the error is a *MemoryError.
func (r *Replica) mostThatFits(limit int) (int, error) {
	free, known := r.memoryLeft()
	p := r.opts.Peers
	unit := r.opts.wholeGroup()
	if p.Divide != nil && limit < r.opts.MicroBatch() {
		limit -= limit % unit
	}
	if limit == 0 || r.opts.Planning || !known && r.plans.hostLoad == nil {
		return limit, nil
	}
	if known && free == 0 {
		free = -1
	}
	fit, need, err := r.plans.fit(limit, unit, free)
	if err != nil {
		return fit, err
	}
	if p.Divide != nil {
		return coarse(fit, limit, unit), nil
	}
	if share := p.first(); share > fit && r.limit.Hard > 0 {
		r.exceed()
		return r.mostThatFits(limit)
	}
	if share := p.first(); share > fit {
		return 0, r.tooLarge(share, fit, need*int64(share)/int64(limit), free)
	}
	return fit, nil
}

// coarseLimits is the number of steps into which coarse divides a limit that the free memory determines.
const coarseLimits = 64

// coarse rounds a limit down. The free memory differs by a few MiB between starts, and this should not change the
// shares.
func coarse(fit, limit, unit int) int {
	if fit == limit {
		return fit
	}
	return fit - fit%coarseStep(fit, unit)
}

func coarseStep(fit, unit int) int { return max(fit/coarseLimits/unit, 1) * unit }
