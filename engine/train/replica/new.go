package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// New builds graphs and plans, allocates all memory, and sets the initial values.
func New(dev device.Device, opts Options) (_ *Replica, err error) {
	r := &Replica{opts: opts, dev: dev, cache: plan.NewCache(dev)}
	if opts.LossScale || opts.Compute == tensor.F16 {
		r.scale = optim.NewLossScale()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.closer.add(r.cache.Close)
	if opts.Accumulation < 1 || opts.BatchSize < 1 || opts.BatchSize%opts.Accumulation != 0 {
		return nil, fmt.Errorf("replica: batch size %d, want a multiple of the %d micro-batches", opts.BatchSize,
			opts.Accumulation)
	}
	if err := opts.checkShorter(); err != nil {
		return nil, err
	}
	if r.stream, err = dev.NewStream(); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	r.closer.add(r.stream.Close)
	if err := opts.checkPeers(); err != nil {
		return nil, err
	}
	if opts.Peers != nil {
		r.group = opts.Peers.Group
	}
	first, err := r.chooseLayout()
	if err != nil {
		return nil, err
	}
	if err := opts.checkLast(r.exact); err != nil {
		return nil, errors.Join(err, first.Free())
	}
	evaluates, err := r.measureProgram(first.Params())
	if err != nil {
		return nil, errors.Join(err, first.Free())
	}
	if err := r.refuseModel(first.Params()); err != nil {
		return nil, errors.Join(err, first.Free(), evaluates())
	}
	r.plans = &planCache{dev: dev, kernels: r.cache, params: first.Params(), accumulation: opts.Accumulation,
		targets: opts.Task.Targets(), shorter: opts.Shorter, graph: opts.graph, recompute: opts.Recompute,
		predicts: opts.Task.Report().Classes > 0, sampled: opts.Task.Report().SampleTarget,
		classWeights: opts.ClassWeights, ranks: opts.planRanks,
		cached: map[planKey]*plans{}, capacity: cmp.Or(opts.CachedPlans, cachedPlans)}
	if err := errors.Join(r.allocate(), first.Free(), evaluates()); err != nil {
		return nil, err
	}
	return r, r.initialize()
}

// chooseLayout compiles a first plan, which determines the layout of parameters. The caller frees the plan. With
// peers, the plan is for the whole micro-batch, so that all ranks choose the same layout, regardless of their shares.
func (r *Replica) chooseLayout() (first *plan.Plan, err error) {
	g, err := r.opts.graph(graphOf{training: true, samples: r.opts.MicroBatch()})
	if err != nil {
		return nil, err
	}
	r.exact = movesStatistics(g)
	if first, err = plan.Compile(r.cache, g, nil); err != nil {
		return nil, err
	}
	same := true
	if r.group != nil {
		same, err = gradsync.SameLayouts(context.Background(), r.group.Grads, r.dev, first.Params())
	}
	if err == nil && !same { // different devices have only plain layouts in common
		if err = first.Free(); err == nil {
			first, err = plan.CompilePlain(r.cache, g)
		}
	}
	if err != nil {
		return nil, err
	}
	return first, nil
}
