package replica

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
)

// plans are the passes of training and evaluation for one share: a number of samples of a micro-batch.
type plans struct {
	planKey
	train   *pass
	shorter []*pass // passes of training for samples of fewer positions, in ascending order; see Options.Shorter
	eval    *pass   // nil if samples is 0
	flops   int64   // FLOPs of one optimizer step on this rank
	staging int64   // bytes of the staging area for the next batch, after the activations; 0 if batches are not staged

	recomputed   int // number of layers whose activations the backward pass recomputes
	recomputable int // largest possible value of recomputed

	// The remaining fields are guarded by planCache.mu.
	bound bool  // the plans have memory and can run
	used  int64 // value of planCache.turn at the last request
	holds int   // number of holders; the cache keeps the plans while it is above 0
}

// planKey distinguishes plans of a replica.
type planKey struct {
	samples     int
	rank, ranks int // this rank and the number of ranks, if the passes exchange statistics; 0 otherwise
	// samples of the micro-batch over all ranks, if the passes exchange statistics and the micro-batch is smaller than
	// the others; 0 otherwise
	total int
}

// passOf returns the training pass for samples of up to the given number of positions; 0 means any number. If several
// passes are suitable, it returns the one with the fewest positions.
func (p *plans) passOf(positions int) *pass {
	for _, s := range p.shorter {
		if positions > 0 && positions <= s.positions {
			return s
		}
	}
	return p.train
}

// training returns all passes of training.
func (p *plans) training() []*pass { return append([]*pass{p.train}, p.shorter...) }

// arenaBytes returns the device memory that the plans need: activations, then the staging area.
func (p *plans) arenaBytes() int64 {
	bytes := p.train.plan.ArenaBytes()
	for _, s := range p.shorter {
		bytes = max(bytes, s.plan.ArenaBytes())
	}
	if p.eval != nil {
		bytes = max(bytes, p.eval.plan.ArenaBytes())
	}
	if p.staging == 0 {
		return bytes
	}
	return roundUp(bytes, stagingUnit) + p.staging
}

// stagingUnit is the alignment of the staging area in bytes. Copies need it to reach full speed.
const stagingUnit = 256

// activationBytes returns the device memory of arenaBytes without the staging area.
func (p *plans) activationBytes() int64 { return p.arenaBytes() - p.staging }

// stagingAt returns the staging area. It is at the end of the arena, after the activations of all plans. The reason is
// that the batch for these plans may arrive while the plans for the last step of an epoch still compute.
func (p *plans) stagingAt(arena device.Buffer) device.Region {
	at := arena.Bytes() - p.staging
	return device.Region{Buffer: arena, Offset: at - at%stagingUnit, Bytes: p.staging}
}

// hostBytes returns the host memory of the inputs and outputs of all passes.
func (p *plans) hostBytes() (bytes int64) {
	for _, pass := range p.training() {
		bytes += pass.hostBytes()
	}
	if p.eval != nil {
		bytes += p.eval.hostBytes()
	}
	return bytes
}

// free frees the plans, their programs, and the kernels that no other plan uses.
func (p *plans) free() error {
	var err error
	for _, pass := range p.training() {
		err = errors.Join(err, pass.free())
	}
	if p.eval != nil {
		err = errors.Join(err, p.eval.free())
	}
	return err
}
