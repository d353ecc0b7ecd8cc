package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// share holds the plans for one number of samples of a micro-batch.
type share struct {
	samples int
	train   *pass
	eval    *pass // nil without samples
	flops   int64 // of one optimizer step on this rank
	staging int64 // bytes after the activations for the next batch; 0 if batches are not staged

	// Guarded by the lock of the shelf.
	bound bool  // ready to run
	used  int64 // turn of the shelf at the last request
	holds int   // number of holders; the plans stay cached while it is above 0
}

func (s *share) arenaBytes() int64 {
	bytes := s.train.plan.ArenaBytes()
	if s.eval != nil {
		bytes = max(bytes, s.eval.plan.ArenaBytes())
	}
	if s.staging == 0 {
		return bytes
	}
	return roundUp(bytes, stagingUnit) + s.staging
}

// stagingUnit is the alignment of the staging place in bytes, with which copies reach full speed.
const stagingUnit = 256

// stagingAt returns the staging place in the arena.
func (s *share) stagingAt(arena device.Buffer) device.Region {
	return device.Region{Buffer: arena, Offset: s.arenaBytes() - s.staging, Bytes: s.staging}
}

// free frees the plans, their programs, and the kernels that no other plan uses.
func (s *share) free() error {
	err := s.train.free()
	if s.eval != nil {
		err = errors.Join(err, s.eval.free())
	}
	return err
}

// PlanShare plans for a share of n samples, so that SetShares need not wait for planning. It may run on another
// goroutine while the replica trains.
func (r *Replica) PlanShare(n int) error {
	s, err := r.ready(n)
	if s != nil {
		r.shelf.release(s)
	}
	return err
}

// ready returns the plans for n samples, bound and held. It evicts the least recently used plans if the cache is full.
func (r *Replica) ready(n int) (*share, error) {
	r.planning.Lock()
	defer r.planning.Unlock()
	if r.closed {
		return nil, errors.New("replica: closed")
	}
	if s := r.shelf.take(n); s != nil {
		return s, nil
	}
	s, err := r.planned(n)
	if err != nil {
		return nil, err
	}
	if err := r.bind(s); err != nil {
		return nil, errors.Join(err, r.shelf.drop(s))
	}
	return s, r.shelf.takeBound(s)
}

// planned returns the plans for n samples. The caller holds r.planning, or is NewReplica.
func (r *Replica) planned(n int) (*share, error) {
	if s := r.shelf.find(n); s != nil {
		return s, nil
	}
	s, err := r.compile(n)
	if err != nil {
		return nil, err
	}
	r.shelf.add(s)
	return s, nil
}

// compile plans training and evaluation for n samples. Both use the same n, so they can use the same arena.
func (r *Replica) compile(n int) (_ *share, err error) {
	training, err := r.opts.graph(true, max(n, 1))
	if err != nil {
		return nil, err
	}
	s := &share{samples: n, train: &pass{idle: n == 0, slots: r.opts.Accumulation}}
	if n == 0 {
		s.train.plan, err = plan.CompileIdle(r.cache, training, r.params)
		return s, err
	}
	s.flops = training.FLOPs() * int64(r.opts.Accumulation)
	if s.train.plan, err = plan.Compile(r.cache, training, r.params); err != nil {
		return nil, err
	}
	if r.dev.Info().Behind {
		for _, name := range batchInputs {
			s.staging += roundUp(s.train.plan.InputBytes(name), twinUnit)
		}
	}
	evaluation, err := r.opts.graph(false, n)
	if err == nil {
		s.eval = &pass{}
		s.eval.plan, err = plan.Compile(r.cache, evaluation, r.params)
	}
	if err != nil {
		return nil, errors.Join(err, s.train.free())
	}
	return s, nil
}

// chooseLayout fixes the layout of parameters by a plan that the caller frees. Ranks must agree, so with peers the plan
// is for the whole micro-batch, regardless of shares.
func (r *Replica) chooseLayout() (first *plan.Plan, err error) {
	g, err := r.opts.graph(true, r.opts.microBatch())
	if err != nil {
		return nil, err
	}
	if first, err = plan.Compile(r.cache, g, nil); err != nil {
		return nil, err
	}
	same := true
	if p := r.opts.Peers; p != nil {
		same, err = gradsync.SameLayouts(context.Background(), p.Grads, r.dev, first.Params())
	}
	if err == nil && !same { // unlike devices have only plain layouts in common
		if err = first.Free(); err == nil {
			first, err = plan.CompilePlain(r.cache, g)
		}
	}
	if err != nil {
		return nil, err
	}
	r.params = first.Params()
	return first, nil
}

// bind binds the plans to memory.
func (r *Replica) bind(s *share) error {
	if have, want := r.arena.Bytes(), s.arenaBytes(); want > have {
		return fmt.Errorf("replica: a share of %d samples needs %d bytes for activations, but only %d are reserved: raise Peers.MaxShare", s.samples, want, have)
	}
	if err := s.train.bind(r.dev, device.Whole(r.arena), r.state, r.sums); err != nil {
		return err
	}
	if s.eval != nil {
		if err := s.eval.bind(r.dev, device.Whole(r.arena), r.state, nil); err != nil {
			return err
		}
	}
	return nil
}

// SetShares sets the samples of each micro-batch for every rank, from the next Step on. All ranks pass the same shares.
// It plans only if the cache lacks this rank's share; PlanShare fills the cache.
func (r *Replica) SetShares(samples []int) error {
	if err := r.checkShares(samples); err != nil {
		return err
	}
	p := r.opts.Peers
	s, err := r.ofShare(samples[p.Grads.Rank()])
	if err != nil {
		return err
	}
	if err := r.sums.SetShares(samples); err != nil {
		return err
	}
	p.Shares = slices.Clone(samples)
	r.shelf.release(r.now)
	r.now = s
	return nil
}

// ofShare is ready, but returns cached plans without waiting for plans in progress.
func (r *Replica) ofShare(n int) (*share, error) {
	if s := r.shelf.take(n); s != nil {
		return s, nil
	}
	return r.ready(n)
}

// checkShares returns an error for shares that the ranks cannot train with.
func (r *Replica) checkShares(samples []int) error {
	p := r.opts.Peers
	if p == nil {
		return fmt.Errorf("replica: shares %v: there are no other ranks", samples)
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
