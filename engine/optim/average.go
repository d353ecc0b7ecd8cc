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

// AverageOptions say how the weights of a run are averaged.
type AverageOptions struct {
	Decay    float64 // how much of the averages is kept at an update; 0 = there are none
	Warmup   bool    // update n keeps at most 1 - n^(-2/3), as timm does, so that averages follow a young model
	Interval int     // optimizer steps between two updates
}

// Weight is what the model's weights count for in update n, counted from 1. The first copies them, as timm's.
//
// Ranks compute it each for itself: nothing but +, -, *, / and conversions that keep a compiler from fusing them, as in [Schedule.Rate].
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

// cubeRoot of x ≥ 1, by Newton's steps from above, which fall until they have arrived.
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

// Average keeps exponential moving averages of a state's trained parameters and of its statistics. One goroutine at a time.
type Average struct {
	opts    AverageOptions
	state   *plan.State
	control device.Region // of the optimizer: a step that it refused leaves the averages as they are

	values, states device.Buffer // beside the state's, as far as those are trained and updated
	spare          device.Buffer // as large as states
	weight         device.Buffer // f32; held.host is its host twin
	held
}

// NewAverage makes averages of the state that opt updates. They begin with Reset.
func NewAverage(cache *plan.Cache, opt *Optimizer, opts AverageOptions) (_ *Average, err error) {
	state := opt.state
	a := &Average{opts: opts, state: state, control: device.Region{Buffer: opt.scalars, Offset: controlAt, Bytes: controlSpec.Size()}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("average of weights: %w", err), a.Close())
		}
	}()
	if !(opts.Decay > 0 && opts.Decay < 1) || opts.Interval < 1 {
		return nil, fmt.Errorf("got a decay of %g every %d steps, want one above 0 and below 1, and at least 1 step", opts.Decay, opts.Interval)
	}
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
	}{{&a.values, state.Params.TrainBytes}, {&a.states, state.Params.MovingBytes}, {&a.spare, state.Params.MovingBytes}, {&a.weight, weightSpec.Size()}} {
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

// build makes the program of one update.
func (a *Average) build(cache *plan.Cache) error {
	var steps []device.Step
	dt := a.state.Params.DType
	for _, r := range a.regions() {
		if r.model.Bytes == 0 {
			continue
		}
		flat := device.Spec(dt, int(r.model.Bytes/dt.Size()))
		k, err := cache.Compile(device.MovingAverage{}, []device.TensorSpec{weightSpec, controlSpec, flat, flat}, []device.TensorSpec{flat})
		if err != nil {
			return err
		}
		l := &device.Launch{Name: "moving_average", Kernel: k, Out: []device.Region{r.average},
			In: []device.Region{{Buffer: a.weight, Bytes: weightSpec.Size()}, a.control, r.average, r.model}}
		if bytes := k.Workspace(); bytes > 0 {
			ws, err := cache.Device.Alloc(bytes)
			if err != nil {
				return err
			}
			a.memory = append(a.memory, ws)
			l.Workspace = device.Whole(ws)
		}
		steps = append(steps, device.Step{Launch: l})
	}
	var err error
	a.program, err = cache.Device.NewProgram(steps)
	return err
}

// averaged pairs memory of the model with its average, and with memory in which nobody minds what is left there.
type averaged struct{ model, average, spare device.Region }

func (a *Average) regions() [2]averaged {
	p := a.state.Params
	part := func(b device.Buffer, bytes int64) device.Region { return device.Region{Buffer: b, Bytes: bytes} }
	// Gradients are written anew by the next step, and have their padding where the values have it: zero in both.
	return [2]averaged{{part(a.state.Values, p.TrainBytes), part(a.values, p.TrainBytes), part(a.state.Grads, p.TrainBytes)},
		{part(a.state.States, p.MovingBytes), part(a.states, p.MovingBytes), part(a.spare, p.MovingBytes)}}
}

// Step enqueues what follows the optimizer's step, the steps-th: an update, where one is due. Wait for the stream before the next Step.
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

// Reset makes the averages what the model is now.
func (a *Average) Reset(s device.Stream) error {
	return a.each(s, func(r averaged) error { return s.Copy(r.average, r.model) })
}

// Exchange puts the averages in the model's place and the model's weights and statistics in theirs. A second Exchange undoes it. It takes the memory of
// the gradients, so call it between steps.
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

// Values are the averages of the trained parameters, laid out as the state's values.
func (a *Average) Values() device.Region { return a.regions()[0].average }

// States are those of the statistics that are updated.
func (a *Average) States() device.Region { return a.regions()[1].average }
