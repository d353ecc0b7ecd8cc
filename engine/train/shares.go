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

// share is the plans for one number of samples of a micro-batch.
type share struct {
	samples int
	train   *pass
	eval    *pass // nil without samples
	flops   int64 // of one optimizer step on this rank
	bound   bool
}

func (s *share) arenaBytes() int64 {
	bytes := s.train.plan.ArenaBytes()
	if s.eval != nil {
		bytes = max(bytes, s.eval.plan.ArenaBytes())
	}
	return bytes
}

// PlanShare plans for a share of n samples, so that SetShares has it at once. It may run on another goroutine while the replica trains.
func (r *Replica) PlanShare(n int) error {
	_, err := r.planned(n)
	return err
}

// planned plans training and evaluation for n samples. Both use the same number, so they share one arena.
func (r *Replica) planned(n int) (_ *share, err error) {
	r.planning.Lock()
	defer r.planning.Unlock()
	if r.closed {
		return nil, errors.New("replica: closed")
	}
	if s := r.shares[n]; s != nil {
		return s, nil
	}
	if r.params == nil {
		if r.params, err = r.layout(n); err != nil {
			return nil, err
		}
	}
	training, err := r.opts.graph(true, max(n, 1))
	if err != nil {
		return nil, err
	}
	s := &share{samples: n, train: &pass{idle: n == 0}}
	if n == 0 {
		s.train.plan, err = plan.CompileIdle(r.cache, training, r.params)
	} else {
		s.flops = training.FLOPs() * int64(r.opts.Accumulation)
		s.train.plan, err = plan.Compile(r.cache, training, r.params)
	}
	if err != nil {
		return nil, err
	}
	if n > 0 {
		evaluation, err := r.opts.graph(false, n)
		if err != nil {
			return nil, err
		}
		s.eval = &pass{}
		if s.eval.plan, err = plan.Compile(r.cache, evaluation, r.params); err != nil {
			return nil, err
		}
	}
	r.shares[n] = s
	return s, nil
}

// layout decides how parameters lie in memory. Ranks must agree, so with peers it comes from the whole micro-batch, whatever share
// a rank has of it.
func (r *Replica) layout(n int) (*plan.Params, error) {
	if r.opts.Peers != nil {
		n = r.opts.microBatch()
	}
	g, err := r.opts.graph(true, n)
	if err != nil {
		return nil, err
	}
	p, err := plan.Compile(r.cache, g, nil)
	if err != nil {
		return nil, err
	}
	if r.opts.Peers == nil {
		return p.Params(), nil
	}
	same, err := gradsync.SameLayouts(context.Background(), r.opts.Peers.Grads, r.dev, p.Params())
	if err != nil {
		return nil, err
	}
	if !same { // unlike devices have only plain layouts in common
		if p, err = plan.CompilePlain(r.cache, g); err != nil {
			return nil, err
		}
	}
	return p.Params(), nil
}

// bind makes a share's plans ready to run.
func (r *Replica) bind(s *share) error {
	if s.bound {
		return nil
	}
	if have, want := r.arena.Bytes(), s.arenaBytes(); want > have {
		return fmt.Errorf("replica: a share of %d samples needs %d bytes for activations, reserved are %d: raise Peers.MaxShare", s.samples, want, have)
	}
	if err := s.train.bind(r.dev, device.Whole(r.arena), r.state, r.sums); err != nil {
		return err
	}
	r.closer.add(s.train.close)
	if s.eval != nil {
		if err := s.eval.bind(r.dev, device.Whole(r.arena), r.state, nil); err != nil {
			return err
		}
		r.closer.add(s.eval.close)
	}
	s.bound = true
	return nil
}

// SetShares changes how many samples of each micro-batch every rank has, from the next Step on. All ranks say the same. Plans for a
// number of samples are kept: it comes at once where this rank had it before.
func (r *Replica) SetShares(samples []int) error {
	p := r.opts.Peers
	if p == nil {
		return fmt.Errorf("replica: shares %v: there are no other ranks", samples)
	}
	if err := p.check(samples, r.opts.microBatch(), r.opts.GhostGroup); err != nil {
		return err
	}
	s, err := r.planned(samples[p.Grads.Rank()])
	if err != nil {
		return err
	}
	if err := r.bind(s); err != nil {
		return err
	}
	if err := r.sums.SetShares(samples); err != nil {
		return err
	}
	p.Shares = slices.Clone(samples)
	r.now = s
	return nil
}
