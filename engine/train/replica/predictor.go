package replica

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/task"
)

// ErrDiverged reports a model or a run whose values are NaN or infinite.
var ErrDiverged = errors.New("training diverged")

// Predictor runs only forward passes of a trained model on one device. It has no gradients and no optimizer state.
// Only one goroutine at a time may use it.
type Predictor struct {
	opts   Options
	dev    device.Device
	state  *plan.State
	stream device.Stream
	arena  device.Buffer
	pass   *pass
	stale  bool // the weights have changed since the plan last made its working copies
	closer closer
}

// NewPredictor compiles a plan for batches of up to opts.BatchSize samples and allocates all memory. It ignores
// options that concern training only. All weights are 0 until LoadWeights or LoadAverages.
func NewPredictor(dev device.Device, opts Options) (_ *Predictor, err error) {
	opts.Accumulation, opts.Peers, opts.logits = 1, nil, !opts.ScoresOnly
	p := &Predictor{opts: opts, dev: dev, pass: &pass{predicts: opts.logits, targets: opts.Task.Targets(),
		sampled: opts.Task.Report().SampleTarget}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if opts.BatchSize < 1 {
		return nil, fmt.Errorf("predictor: batch size %d, want at least 1", opts.BatchSize)
	}
	cache := plan.NewCache(dev)
	p.closer.add(cache.Close)
	g, err := opts.graph(graphOf{samples: opts.BatchSize})
	if err != nil {
		return nil, err
	}
	if p.pass.plan, err = plan.Compile(cache, g, nil); err != nil {
		return nil, err
	}
	if p.stream, err = dev.NewStream(); err != nil {
		return nil, fmt.Errorf("predictor: %w", err)
	}
	p.closer.add(p.stream.Close)
	if p.state, err = plan.NewState(cache, p.pass.plan.Params()); err != nil {
		return nil, err
	}
	p.closer.add(p.state.Close)
	bytes := max(p.pass.plan.ArenaBytes(), 1)
	if p.arena, err = dev.Alloc(bytes); err != nil {
		return nil, tooLarge(dev, opts.BatchSize, bytes, err)
	}
	p.closer.add(p.arena.Free)
	p.closer.add(p.pass.free) // frees the programs of the pass before the memory
	return p, p.pass.bind(dev, device.Whole(p.arena), p.state, nil)
}

// LoadWeights loads parameters and statistics from a safetensors file. If the file belongs to another model, the
// error lists the differences.
func (p *Predictor) LoadWeights(f *checkpoint.File) error { return p.load(f, f.ReadInto) }

// LoadAverages loads the averages that a checkpoint stores in addition to its weights; see
// checkpoint.Checkpoint.Averaged.
func (p *Predictor) LoadAverages(c *checkpoint.Checkpoint) error {
	return p.load(c.Model, c.ReadAverage)
}

func (p *Predictor) load(f *checkpoint.File, read func(name string, dst []byte) error) error {
	p.stale = true
	return f.Load(p.state, read)
}

// Run computes a batch of at most BatchSize samples, with running statistics and without dropout. Targets with a
// label below 0 count only in Sums.Samples.
func (p *Predictor) Run(b *data.Batch) (Sums, error) {
	if p.stale {
		if err := p.pass.plan.Prepare(p.stream); err != nil {
			return Sums{}, fmt.Errorf("prepare: %w", err)
		}
		p.stale = false
	}
	if err := p.pass.load(p.stream, b); err != nil {
		return Sums{}, err
	}
	if err := p.pass.plan.Forward(p.stream); err != nil {
		return Sums{}, fmt.Errorf("forward: %w", err)
	}
	if err := errors.Join(p.pass.fetch(p.stream, 0), p.stream.Sync()); err != nil {
		return Sums{}, fmt.Errorf("forward: %w", err)
	}
	sums := p.pass.sums(b.N, 0)
	sums.Count = targetsOf(b)
	return sums, nil
}

// Count adds the predictions of b to c. The last batch passed to Run must be b. The predictor must compute
// probabilities.
func (p *Predictor) Count(b *data.Batch, c *task.Confusion) { p.pass.count(b, c) }

// Rank adds the scores of b to r. The last batch passed to Run must be b. The classes must be independent.
func (p *Predictor) Rank(b *data.Batch, r *task.Ranking) {
	classes, at := p.opts.Task.Report().Classes, p.pass.scores()
	for i, label := range data.Values[int32](b, task.Labels) {
		if label >= 0 {
			r.Add(i%classes, at(i), label == 1)
		}
	}
}

// Probabilities writes the probabilities of the classes of target i of the last batch to out, one number per class: the
// softmax of its logits. If the classes are independent, i is a sample, and each probability is the sigmoid of a logit.
// Error: ErrDiverged if a logit is NaN or infinite, because the probabilities then mean nothing.
func (p *Predictor) Probabilities(i int, out []float64) error {
	classes, most, at := len(out), math.Inf(-1), p.pass.scores()
	for c := range classes {
		out[c] = at(i*classes + c)
		if math.IsNaN(out[c]) || math.IsInf(out[c], 0) {
			return fmt.Errorf("%w: the model's score of class %d is %g: use an earlier checkpoint, or train again with a smaller optimizer.lr",
				ErrDiverged, c, out[c])
		}
		most = max(most, out[c])
	}
	if p.opts.Task.Report().Independent {
		for c := range classes {
			out[c] = 1 / (1 + math.Exp(-out[c]))
		}
		return nil
	}
	sum := 0.0
	for c := range classes {
		out[c] = math.Exp(out[c] - most)
		sum += out[c]
	}
	for c := range classes {
		out[c] /= sum
	}
	return nil
}

// ParamCount returns the number of trained elements, without padding.
func (p *Predictor) ParamCount() int64 {
	var n int64
	for _, t := range p.state.Params.Params {
		n += t.Spec.Shape.Elements()
	}
	return n
}

// Close frees all resources in reverse order of allocation.
func (p *Predictor) Close() error { return p.closer.close() }
