package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Limits returns the largest number of samples of a micro-batch that each rank can hold; nil for a single rank.
func (r *Replica) Limits() []int { return r.limits }

// settleShares finds the largest share of each rank and chooses the first shares. Parameters, moments and buffers for
// sums over ranks are already allocated; activations may use the remaining memory.
func (r *Replica) settleShares() error {
	p, micro := r.opts.Peers, r.opts.microBatch()
	if p == nil {
		r.most = micro
		return nil
	}
	own, err := r.limit(p.most(micro))
	if err != nil {
		return err
	}
	if r.limits, err = r.gather(context.Background(), own); err != nil {
		return fmt.Errorf("limits of ranks: %w", err)
	}
	p.MaxShare, r.most = own, own
	if p.Divide != nil {
		if p.Shares, err = p.Divide(append([]int(nil), r.limits...)); err != nil {
			return fmt.Errorf("replica: shares of a micro-batch of %d samples: %w", micro, err)
		}
		decided, err := r.gather(context.Background(), int(hashOf(p.Shares)))
		if err != nil {
			return fmt.Errorf("first shares of ranks: %w", err)
		}
		for rank, hash := range decided {
			if hash != decided[0] {
				return disagreement(rank)
			}
		}
	}
	return r.checkShares(p.Shares)
}

// most returns the largest share that this rank may ever get, regardless of memory.
func (p *Peers) most(micro int) int {
	switch {
	case p.MaxShare > 0 && p.Divide == nil:
		return max(min(p.MaxShare, micro), p.share(micro))
	case p.MaxShare > 0:
		return min(p.MaxShare, micro)
	case p.Divide == nil:
		return p.share(micro)
	}
	return micro
}

// memoryLeft returns the bytes available for activations, negative if even the fixed part does not fit. known is false
// if neither the device nor the options state a limit.
func (r *Replica) memoryLeft() (bytes int64, known bool) {
	used, _ := r.dev.Memory()
	total := r.opts.Peers.MemoryBytes
	if has := r.dev.Info().MemoryBytes; total == 0 || has > 0 && has < total {
		total = has
	}
	return total - used, total > 0
}

// limit returns the largest share up to most whose activations fit into memory, found by planning. The result is most
// or a multiple of a group of batch normalisation. limit returns a *MemoryError if the fixed first share does not fit.
func (r *Replica) limit(most int) (int, error) {
	free, known := r.memoryLeft()
	p := r.opts.Peers
	unit := r.opts.wholeGroup()
	if p.Divide != nil && most < r.opts.microBatch() {
		most -= most % unit
	}
	if most == 0 || !known {
		return most, nil
	}
	s, err := r.planned(most)
	if err != nil {
		return 0, err
	}
	need := s.arenaBytes()
	if need <= free {
		return most, nil
	}
	if err := r.shelf.drop(s); err != nil {
		return 0, err
	}
	fit, err := r.largest(most, unit, need, free)
	if err != nil {
		return 0, err
	}
	if p.Divide != nil {
		return fit, nil
	}
	if share := p.share(0); share > fit {
		return 0, &MemoryError{Samples: share, Fit: fit, NeedBytes: need * int64(share) / int64(most), FreeBytes: free, Err: device.ErrOutOfMemory}
	}
	return fit, nil
}

// largest returns the largest number of samples below most, which needs too much, that fits into free bytes. The bytes
// of a plan are almost linear in its samples, so each guess is on the line through the previous two points.
func (r *Replica) largest(most, unit int, need, free int64) (int, error) {
	low, high := 0, (most+unit-1)/unit // in units; low fits, high does not
	x0, y0, x1, y1 := 0.0, 0.0, float64(most), float64(need)
	for tries := 0; high-low > 1; tries++ {
		guess := (low + high) / 2
		if slope := (y1 - y0) / (x1 - x0); slope > 0 && tries < 6 { // else bisection
			guess = int((x0 + (float64(free)-y0)/slope) / float64(unit))
		}
		guess = min(max(guess, low+1), high-1)
		s, err := r.compile(guess * unit)
		if err != nil {
			return 0, err
		}
		bytes := s.arenaBytes()
		if err := s.free(); err != nil {
			return 0, err
		}
		if bytes <= free {
			low = guess
		} else {
			high = guess
		}
		x0, y0, x1, y1 = x1, y1, float64(guess*unit), float64(bytes)
	}
	return low * unit, nil
}

// wholeGroup returns the unit of shares: the samples of a group of batch normalisation.
func (o ReplicaOptions) wholeGroup() int {
	if o.GhostGroup > 0 && !o.Peers.SyncNorm {
		return o.GhostGroup
	}
	return 1
}

// gather collects one number of each rank.
func (r *Replica) gather(ctx context.Context, own int) ([]int, error) {
	comm := r.opts.Peers.Grads
	counts := make([]int64, comm.Size())
	for i := range counts {
		counts[i] = 1
	}
	host, err := r.dev.AllocHost(int64(8 * len(counts)))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(host.Host()[8*comm.Rank():], uint64(own))
	err = comm.Enqueue(collective.AllGather{Name: "limits", Buffer: device.Whole(host), DType: tensor.I64, Counts: counts})
	if err == nil {
		err = comm.Sync(ctx)
	}
	if err != nil {
		comm.Abort(err)
		_ = comm.Sync(context.Background()) // until the memory is unused; err already holds the first error
		return nil, errors.Join(err, host.Free())
	}
	all := make([]int, len(counts))
	for i := range all {
		all[i] = int(binary.LittleEndian.Uint64(host.Host()[8*i:]))
	}
	return all, host.Free()
}
