package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Limits returns the largest share of each rank that fits into its memory; nil for a single rank.
func (r *Replica) Limits() []int { return r.limits }

// settleShares finds the largest share of each rank and chooses the first shares. Parameters, moments and buffers for
// sums over ranks are already allocated. Activations may use the remaining memory.
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
		return fmt.Errorf("gather the limits of ranks: %w", err)
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

// most returns the largest share that this rank may get, without regard to memory.
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
	if p.Divide != nil && most < r.opts.microBatch() {
		most -= most % unit
	}
	if most == 0 || !known {
		return most, nil
	}
	fit, need, err := r.plans.fit(most, unit, free)
	if err != nil || p.Divide != nil {
		return fit, err
	}
	if share := p.share(0); share > fit {
		return 0, &MemoryError{Samples: share, Fit: fit, NeedBytes: need * int64(share) / int64(most), FreeBytes: free, Err: device.ErrOutOfMemory}
	}
	return fit, nil
}

// wholeGroup returns the unit of shares: the number of samples of a group of batch normalisation, or 1.
func (o ReplicaOptions) wholeGroup() int {
	if o.GhostGroup > 0 && (o.Peers == nil || !o.Peers.SyncNorm) {
		return o.GhostGroup
	}
	return 1
}

// gather returns the numbers own of all ranks.
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
		_ = comm.Sync(context.Background()) // wait until no operation uses the memory; err already contains the first error
		return nil, errors.Join(err, host.Free())
	}
	all := make([]int, len(counts))
	for i := range all {
		all[i] = int(binary.LittleEndian.Uint64(host.Host()[8*i:]))
	}
	return all, host.Free()
}

// checkShares returns an error for shares that the ranks cannot train with.
func (r *Replica) checkShares(samples []int) error {
	p := r.opts.Peers
	if p == nil {
		return fmt.Errorf("replica: got shares %v, want no shares, because the run has one rank", samples)
	}
	if err := p.check(samples, r.opts.microBatch(), r.opts.GhostGroup); err != nil {
		return err
	}
	for rank, n := range samples {
		if n > r.limits[rank] {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want at most the %d that it can hold", rank, n, r.limits[rank])
		}
	}
	return nil
}

// hashOf returns a hash of shares that is never 0. Different shares rarely have equal hashes.
func hashOf(shares []int) uint32 {
	h := fnv.New32a()
	for _, n := range shares {
		fmt.Fprintf(h, "%d ", n)
	}
	return max(h.Sum32(), 1)
}

// disagreement returns the error for ranks whose splitters return different shares.
func disagreement(rank int) error {
	return fmt.Errorf("rank %d and rank 0 computed different shares, because their CPUs or their builds of the program round differently: set balance.fixed_shares, or balance.policy = \"none\"", rank)
}
