package optim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// normChunk is the number of elements of one partial sum of the gradient norm. It is a constant, so that norms with
// different numbers of threads are bit-equal.
const normChunk = 1 << 14

// Options selects and configures the update rule.
type Options struct {
	Name        string // "sgd" or "adamw"
	Momentum    float64
	Nesterov    bool
	WeightDecay float64
	Beta1       float64
	Beta2       float64
	Eps         float64
	ClipNorm    float64 // largest gradient norm; 0: no clipping
	// LayerDecay scales the learning rate of a layer by LayerDecay^(number of later layers). The last layer has the
	// full rate. 0 means 1.
	LayerDecay float64
	// Decays reports whether weight decay applies to a parameter with this name and shape. nil means that it applies
	// to all.
	Decays func(name string, shape tensor.Shape) bool
}

// Moment is optimizer state that checkpoints store: a flat buffer with the layout of the parameters.
type Moment struct {
	Name string // "momentum", "exp_avg", "exp_avg_sq"
	Flat device.Buffer
}

// Optimizer updates the values of a state from its gradients. It is not safe for concurrent use.
type Optimizer struct {
	opts    Options
	state   *plan.State
	moments []Moment
	steps   int // number of updates done, for Adam's bias correction

	modelled bool // the device computes no values, so all gradients count as finite

	scalars device.Buffer // on the device: hyper f32 (4), unscale f32 (1), control f32 (3), partial sums f64
	held                  // held.host contains copies of hyper, unscale and control
}

// Byte offsets in scalars. control and the partial sums each start on a cache line.
const (
	hyperAt   = 0
	unscaleAt = 16
	controlAt = 64
	partialAt = 128
)

// New creates an optimizer for state with moments of 0. grads is the flat buffer of gradients, usually state.Grads.
func New(cache *plan.Cache, state *plan.State, grads device.Buffer, opts Options) (_ *Optimizer, err error) {
	o := &Optimizer{opts: opts, state: state, modelled: cache.Device.Info().Modelled}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("optimizer %s: %w", opts.Name, err), o.Close())
		}
	}()
	op, names, err := o.rule()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		flat, err := state.NewFlat(state.Params.TrainBytes)
		if err != nil {
			return nil, fmt.Errorf("%s of %d bytes: %w", name, state.Params.TrainBytes, err)
		}
		o.moments = append(o.moments, Moment{Name: name, Flat: flat})
		o.memory = append(o.memory, flat)
	}
	if err := o.build(cache, grads, op); err != nil {
		return nil, err
	}
	return o, nil
}

// MomentCount returns the number of moments of the optimizer; each has the size of the trained parameters.
func (o Options) MomentCount() int {
	switch {
	case o.Name == "adamw":
		return 2
	case o.Momentum != 0:
		return 1
	}
	return 0
}

// rule returns the update op and the names of its moments.
func (o *Optimizer) rule() (device.Op, []string, error) {
	segments := o.segments()
	switch o.opts.Name {
	case "sgd":
		op := device.SGD{Momentum: float32(o.opts.Momentum), Nesterov: o.opts.Nesterov, Segments: segments}
		if op.Momentum == 0 {
			return op, nil, nil
		}
		return op, []string{"momentum"}, nil
	case "adamw":
		op := device.AdamW{Beta1: float32(o.opts.Beta1), Beta2: float32(o.opts.Beta2), Eps: float32(o.opts.Eps),
			Segments: segments}
		return op, []string{"exp_avg", "exp_avg_sq"}, nil
	}
	return nil, nil, errors.New("unknown name, want sgd or adamw")
}

// segments returns the segments of the trained parameters. Neighbours with equal factors form one segment.
func (o *Optimizer) segments() []device.Segment {
	var out []device.Segment
	size := o.state.Params.DType.Size()
	last := 0
	for _, p := range o.state.Params.Params {
		last = max(last, p.Layer)
	}
	for i, p := range o.state.Params.Params {
		if p.Frozen {
			break // all later parameters are also frozen
		}
		end := o.state.Params.Bytes
		if i+1 < len(o.state.Params.Params) {
			end = o.state.Params.Params[i+1].Offset
		}
		s := device.Segment{Offset: p.Offset / size, Length: (end - p.Offset) / size, LRScale: 1}
		if d := o.opts.LayerDecay; d > 0 {
			s.LRScale = float32(power(d, last-p.Layer))
		}
		if o.opts.Decays == nil || o.opts.Decays(p.Name, p.Spec.Shape) {
			s.WeightDecay = float32(o.opts.WeightDecay)
		}
		if n := len(out); n > 0 && out[n-1].WeightDecay == s.WeightDecay && out[n-1].LRScale == s.LRScale {
			out[n-1].Length += s.Length
			continue
		}
		out = append(out, s)
	}
	return out
}

// build allocates the scalars and compiles the program.
func (o *Optimizer) build(cache *plan.Cache, grads device.Buffer, update device.Op) (err error) {
	dev, n := cache.Device, o.state.Params.TrainElements()
	flat := device.Spec(o.state.Params.DType, n)
	hyper, unscale, control := device.Spec(tensor.F32, 4), device.Spec(tensor.F32, 1), device.Spec(tensor.F32, 3)
	partial := device.Spec(tensor.F64, (n+normChunk-1)/normChunk)
	if o.scalars, err = o.state.NewFlat(partialAt + partial.Size()); err != nil {
		return err
	}
	o.memory = append(o.memory, o.scalars)
	if o.host, err = dev.AllocHost(partialAt); err != nil {
		return err
	}
	o.memory = append(o.memory, o.host)
	values, grad := plan.At(o.state.Values, 0, flat), plan.At(grads, 0, flat)
	sums, controls := plan.At(o.scalars, partialAt, partial), plan.At(o.scalars, controlAt, control)
	in, out := []plan.Operand{plan.At(o.scalars, hyperAt, hyper), controls, values, grad}, []plan.Operand{values}
	for _, m := range o.moments {
		in, out = append(in, plan.At(m.Flat, 0, flat)), append(out, plan.At(m.Flat, 0, flat))
	}
	o.ops = plan.NewSequence(cache)
	for _, l := range []struct {
		op      device.Op
		in, out []plan.Operand
	}{
		{device.SumSquares{Chunk: normChunk}, []plan.Operand{grad}, []plan.Operand{sums}},
		{device.GradControl{MaxNorm: o.opts.ClipNorm}, []plan.Operand{sums, plan.At(o.scalars, unscaleAt, unscale)},
			[]plan.Operand{controls}},
		{update, in, out},
	} {
		o.ops.Launch(l.op.Kind(), l.op, l.in, l.out...)
	}
	o.program, err = o.ops.Program()
	return err
}

// Step enqueues one update at the given learning rate. Step multiplies the gradients by unscale, for example to remove
// a loss scale. Wait for the stream before the next Step: that Step overwrites the host memory of the scalars.
func (o *Optimizer) Step(s device.Stream, rate, unscale float64) error {
	o.steps++
	hyper := [4]float64{rate}
	if o.opts.Name == "adamw" {
		// Round the betas to f32, like the kernel. This makes 0.999 larger by 1e-8, which changes the first updates by
		// 6e-6.
		beta1, beta2, t := float64(float32(o.opts.Beta1)), float64(float32(o.opts.Beta2)), float64(o.steps)
		hyper[1] = rate / (1 - math.Pow(beta1, t))
		hyper[2] = math.Sqrt(1 - math.Pow(beta2, t))
	}
	mem := o.host.Host()
	for i, v := range hyper {
		binary.LittleEndian.PutUint32(mem[hyperAt+4*i:], math.Float32bits(float32(v)))
	}
	binary.LittleEndian.PutUint32(mem[unscaleAt:], math.Float32bits(float32(unscale)))
	if err := s.Copy(device.Region{Buffer: o.scalars, Bytes: controlAt},
		device.Region{Buffer: o.host, Bytes: controlAt}); err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	if err := s.Run(o.program); err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	const controlBytes = partialAt - controlAt
	if err := s.Copy(device.Region{Buffer: o.host, Offset: controlAt, Bytes: controlBytes},
		device.Region{Buffer: o.scalars, Offset: controlAt, Bytes: controlBytes}); err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	return nil
}

// Result returns the gradient norm of the last step, before clipping, and whether it was finite. If the norm was not
// finite, the step did not change any value, and does not count. Wait for the stream first, and call Result once per
// step.
func (o *Optimizer) Result() (norm float64, ok bool) {
	mem := o.host.Host()[controlAt:]
	norm = float64(math.Float32frombits(binary.LittleEndian.Uint32(mem)))
	ok = o.modelled || math.Float32frombits(binary.LittleEndian.Uint32(mem[8:])) != 0
	if !ok {
		o.steps--
	}
	return norm, ok
}

// Moments returns the buffers that checkpoints store.
func (o *Optimizer) Moments() []Moment { return o.moments }

// Steps returns the number of updates done. Checkpoints store it.
func (o *Optimizer) Steps() int { return o.steps }

// SetSteps sets the number of updates done, as stored in a checkpoint.
func (o *Optimizer) SetSteps(n int) { o.steps = n }
