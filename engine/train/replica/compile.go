package replica

import (
	"errors"
	"math"

	"github.com/hetero-train/hetero-train/engine/plan"
)

// compile compiles training and evaluation for the samples of k. If there is not enough memory, it recomputes layers as
// c.recompute permits. The caller holds c.compiling.
func (c *planCache) compile(k planKey) (*plans, error) {
	if c.closed {
		return nil, errors.New("replica: closed")
	}
	if k.samples == 0 {
		return c.compileWith(k, 0)
	}
	if c.recompute == RecomputeAlways {
		return c.compileWith(k, math.MaxInt)
	}
	kept, err := c.compileWith(k, 0)
	if err != nil || c.recompute == RecomputeNever || kept.recomputable == 0 || c.load(kept) <= 1 {
		return kept, err
	}
	return c.recomputing(kept)
}

// recomputing returns plans that recompute the smallest number of layers with which they fit into memory. If no number
// fits, it returns the plans that need the least memory. The parameter kept contains the plans without recomputation,
// which do not fit. recomputing frees all plans that it does not return.
func (c *planCache) recomputing(kept *plans) (*plans, error) {
	best, err := c.compileWith(kept.planKey, kept.recomputable)
	if err != nil {
		return nil, errors.Join(err, kept.free())
	}
	if c.load(best) > 1 {
		if best.arenaBytes() >= kept.arenaBytes() {
			best, kept = kept, best
		}
		return best, kept.free()
	}
	low, high := 0, best.recomputed // low layers do not fit, high layers fit
	for err = kept.free(); err == nil && high-low > 1; {
		var p *plans
		if p, err = c.compileWith(best.planKey, (low+high)/2); err != nil {
			break
		}
		if c.load(p) > 1 {
			low, err = p.recomputed, p.free()
		} else {
			best, high, err = p, p.recomputed, best.free()
		}
	}
	if err != nil {
		return nil, errors.Join(err, best.free())
	}
	return best, nil
}

// compileWith compiles training and evaluation for the samples of k. The backward pass recomputes the given number of
// layers, beginning with the first layer of the model. It never recomputes the last layer. Both passes have the same
// number of samples, so they can use the same arena.
func (c *planCache) compileWith(k planKey, layers int) (_ *plans, err error) {
	n := k.samples
	training, err := c.graph(graphOf{training: true, samples: max(n, 1), total: k.total, recomputed: layers})
	if err != nil {
		return nil, err
	}
	p := &plans{planKey: k, recomputed: training.Recomputed(), recomputable: training.Layers() - 1,
		train: &pass{idle: n == 0, slots: c.accumulation, targets: c.targets, sampled: c.sampled,
			classWeights: c.classWeights}}
	if n == 0 {
		p.train.plan, err = plan.CompileIdle(c.kernels, training, c.params)
		return p, err
	}
	p.flops = training.FLOPs() * int64(c.accumulation)
	if p.train.plan, err = plan.Compile(c.kernels, training, c.params); err != nil {
		return nil, err
	}
	if c.dev.Info().Behind {
		for _, name := range p.train.plan.InputNames() {
			if isField(name) {
				p.staging += roundUp(p.train.plan.InputBytes(name), twinUnit)
			}
		}
	}
	if c.binding && p.staging > 0 {
		p.staging = max(p.staging, c.memory.staging)
	}
	for _, positions := range c.shorter {
		if err := c.compileShorter(p, positions, layers); err != nil {
			return nil, errors.Join(err, p.free())
		}
	}
	evaluation, err := c.graph(graphOf{samples: n})
	if err == nil {
		p.eval = &pass{targets: c.targets, predicts: c.predicts, sampled: c.sampled}
		p.eval.plan, err = plan.Compile(c.kernels, evaluation, c.params)
	}
	if err != nil {
		p.eval = nil
		return nil, errors.Join(err, p.free())
	}
	return p, nil
}

// compileShorter adds the training pass for samples of the given number of positions.
func (c *planCache) compileShorter(p *plans, positions, layers int) error {
	training, err := c.graph(graphOf{training: true, samples: p.samples, total: p.total, recomputed: layers,
		positions: positions})
	if err != nil {
		return err
	}
	targets := c.targets
	for _, o := range training.Outputs {
		if o.Name == "loss" {
			targets = o.Value.Shape[0] / p.samples
		}
	}
	made, err := plan.Compile(c.kernels, training, c.params)
	if err != nil {
		return err
	}
	p.shorter = append(p.shorter, &pass{plan: made, slots: c.accumulation, targets: targets, sampled: c.sampled,
		classWeights: c.classWeights, positions: positions})
	return nil
}
