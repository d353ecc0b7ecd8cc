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

// AverageOptions configures the averages of weights.
type AverageOptions struct {
	Decay    float64 // weight of the old averages in an update; 0: no averages
	Warmup   bool    // limit this weight to 1 - n^(-2/3) in update n, as in timm: early averages follow the model
	Interval int     // number of optimizer steps between updates
}

// Weight returns the weight of the model's values in update n, counted from 1. The first update copies the values, as
// in timm.
//
// Each rank computes the weight, and the results must be bit-equal on all ranks. Weight therefore uses only +, -, *, /
// and conversions that prevent a fused multiply-add, as [Schedule.Rate] does.
func (o AverageOptions) Weight(n int) float64 {
	if n <= 1 {
		return 1
	}
	rest := 1 - o.Decay
	if o.Warmup {
		root := cubeRoot(float64(n))
		rest = max(rest, 1/float64(root*root))
	}
	return rest
}

// cubeRoot returns the cube root of x ≥ 1. It uses Newton's method from above, so the steps decrease until they
// converge.
func cubeRoot(x float64) float64 {
	y := x
	for {
		next := y - (float64(float64(y*y)*y)-x)/float64(3*float64(y*y))
		if next >= y {
			return y
		}
		y = next
	}
}

// Average keeps exponential moving averages of the trained parameters and statistics of a state. It is not safe for
// concurrent use.
type Average struct {
	opts    AverageOptions
	state   *plan.State
	control device.Region // control values of the optimizer; skipped steps do not change the averages

	values, states device.Buffer // averages of the trained parameters and of the updated statistics
	spare          device.Buffer // scratch memory of the size of states
	weight         device.Buffer // f32; held.host is its host twin
	held
}

// NewAverage allocates averages for the state that opt updates. Call Reset to set their first values.
func NewAverage(cache *plan.Cache, opt *Optimizer, opts AverageOptions) (_ *Average, err error) {
	state := opt.state
	a := &Average{opts: opts, state: state, control: device.Region{Buffer: opt.scalars, Offset: controlAt,
		Bytes: controlSpec.Size()}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("average of weights: %w", err), a.Close())
		}
	}()
	if !(opts.Decay > 0 && opts.Decay < 1) || opts.Interval < 1 {
		return nil,
			fmt.Errorf("got decay %g and interval %d steps, want a decay above 0 and below 1, and an interval of at least 1 step",
				opts.Decay, opts.Interval)
	}
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
	}{{&a.values, state.Params.TrainBytes}, {&a.states, state.Params.MovingBytes}, {&a.spare, state.Params.MovingBytes},
		{&a.weight, weightSpec.Size()}} {
		if *b.to, err = state.NewFlat(b.bytes); err != nil {
			return nil, fmt.Errorf("%d bytes: %w", b.bytes, err)
		}
		a.memory = append(a.memory, *b.to)
	}
	if a.host, err = cache.Device.AllocHost(weightSpec.Size()); err != nil {
		return nil, err
	}
	a.memory = append(a.memory, a.host)
	return a, a.build(cache)
}

var weightSpec, controlSpec = device.Spec(tensor.F32, 1), device.Spec(tensor.F32, 3)

// build compiles the program of one update.
func (a *Average) build(cache *plan.Cache) (err error) {
	a.ops = plan.NewSequence(cache)
	dt := a.state.Params.DType
	for _, r := range a.regions() {
		if r.model.Bytes == 0 {
			continue
		}
		flat := device.Spec(dt, int(r.model.Bytes/dt.Size()))
		a.ops.Launch("moving_average", device.MovingAverage{}, []plan.Operand{plan.At(a.weight, 0, weightSpec),
			{Spec: controlSpec, At: a.control}, {Spec: flat, At: r.average}, {Spec: flat, At: r.model}},
			plan.Operand{Spec: flat, At: r.average})
	}
	a.program, err = a.ops.Program()
	return err
}

// averaged is a part of the model, its average, and scratch memory of the same size.
type averaged struct{ model, average, spare device.Region }

func (a *Average) regions() [2]averaged {
	p := a.state.Params
	part := func(b device.Buffer, bytes int64) device.Region { return device.Region{Buffer: b, Bytes: bytes} }
	// The memory of the gradients can serve as scratch memory: the next step overwrites the gradients, and their
	// padding is 0, like that of the values.
	return [2]averaged{
		{part(a.state.Values, p.TrainBytes), part(a.values, p.TrainBytes), part(a.state.Grads, p.TrainBytes)},
		{part(a.state.States, p.MovingBytes), part(a.states, p.MovingBytes), part(a.spare, p.MovingBytes)}}
}

// Step enqueues an update of the averages if steps is a multiple of the interval. Wait for the stream before the next
// Step.
func (a *Average) Step(s device.Stream, steps int) error {
	if steps%a.opts.Interval != 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(a.host.Host(), math.Float32bits(float32(a.opts.Weight(steps/a.opts.Interval))))
	if err := s.Copy(device.Region{Buffer: a.weight, Bytes: weightSpec.Size()}, device.Whole(a.host)); err != nil {
		return fmt.Errorf("average of weights: %w", err)
	}
	if err := s.Run(a.program); err != nil {
		return fmt.Errorf("average of weights: %w", err)
	}
	return nil
}

// Reset sets the averages to the current values of the model.
func (a *Average) Reset(s device.Stream) error {
	return a.each(s, func(r averaged) error { return s.Copy(r.average, r.model) })
}

// Exchange swaps the averages with the model's weights and statistics. A second Exchange swaps them back. Call it
// only between steps, because it overwrites the memory of the gradients.
func (a *Average) Exchange(s device.Stream) error {
	return a.each(s, func(r averaged) error {
		return errors.Join(s.Copy(r.spare, r.model), s.Copy(r.model, r.average), s.Copy(r.average, r.spare))
	})
}

func (a *Average) each(s device.Stream, do func(averaged) error) error {
	for _, r := range a.regions() {
		if r.model.Bytes == 0 {
			continue
		}
		if err := do(r); err != nil {
			return fmt.Errorf("average of weights: %w", err)
		}
	}
	return s.Sync()
}

// Values returns the averages of the trained parameters, in the layout of the state's values.
func (a *Average) Values() device.Region { return a.regions()[0].average }

// States returns the averages of the updated statistics.
func (a *Average) States() device.Region { return a.regions()[1].average }
