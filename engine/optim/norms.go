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

// ParamNorms contains the Euclidean norms of one parameter in a step.
type ParamNorms struct {
	Name     string
	Gradient float64 // norm of the gradient of the mean loss, before clipping
	Weight   float64 // norm of the weights after the step
	Update   float64 // norm of the change of the weights in this step
}

// Norms measures norms of single parameters in selected steps. It permanently needs memory for a copy of the trained
// parameters, but other steps take no extra time.
type Norms struct {
	state    *plan.State
	all      []ParamNorms
	chunks   []int         // number of partial sums of each parameter
	stride   int64         // bytes of the partial sums of all parameters for one of the three norms
	before   device.Buffer // values before the step, later the change of the values
	partials device.Buffer // f64 sums of gradients, values and changes; each parameter starts on a cache line
	held
}

// NewNorms allocates norms for the optimizer that updates state from grads.
func NewNorms(cache *plan.Cache, state *plan.State, grads device.Buffer) (_ *Norms, err error) {
	n := &Norms{state: state}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("norms of parameters: %w", err), n.Close())
		}
	}()
	const line = 64 / 8 // number of partial sums on a cache line
	for _, p := range state.Params.Params {
		if p.Frozen {
			break // all later parameters are also frozen
		}
		chunks := (int(p.Spec.Size()/p.Spec.DType.Size()) + normChunk - 1) / normChunk
		n.all, n.chunks = append(n.all, ParamNorms{Name: p.Name}), append(n.chunks, chunks)
		n.stride += int64((chunks + line - 1) / line * line * 8)
	}
	if n.before, err = n.flat(state.Params.TrainBytes); err != nil {
		return nil, err
	}
	if n.partials, err = n.flat(3 * n.stride); err != nil {
		return nil, err
	}
	if n.host, err = cache.Device.AllocHost(3 * n.stride); err != nil {
		return nil, err
	}
	n.memory = append(n.memory, n.host)
	return n, n.build(cache, grads)
}

func (n *Norms) flat(bytes int64) (device.Buffer, error) {
	b, err := n.state.NewFlat(bytes)
	if err != nil {
		return nil, fmt.Errorf("%d bytes: %w", bytes, err)
	}
	n.memory = append(n.memory, b)
	return b, nil
}

// build compiles the program that runs after the update.
func (n *Norms) build(cache *plan.Cache, grads device.Buffer) (err error) {
	n.ops = plan.NewSequence(cache)
	params := n.state.Params
	whole := device.Spec(params.DType, params.TrainElements())
	before := plan.At(n.before, 0, whole)
	n.ops.Launch("update", device.Binary{Func: device.Sub}, []plan.Operand{before, plan.At(n.state.Values, 0, whole)},
		before)
	for kind, of := range []device.Buffer{grads, n.state.Values, n.before} {
		to := int64(kind) * n.stride
		for i, chunks := range n.chunks {
			p := params.Params[i]
			x, partial := device.Spec(params.DType, int(p.Spec.Size()/params.DType.Size())),
				device.Spec(tensor.F64, chunks)
			n.ops.Launch("sum_squares "+p.Name, device.SumSquares{Chunk: normChunk},
				[]plan.Operand{plan.At(of, p.Offset, x)}, plan.At(n.partials, to, partial))
			to += (partial.Size() + 63) / 64 * 64
		}
	}
	n.program, err = n.ops.Program()
	return err
}

// Before enqueues a copy of the values. Call it before the optimizer's step.
func (n *Norms) Before(s device.Stream) error {
	bytes := n.state.Params.TrainBytes
	return s.Copy(device.Region{Buffer: n.before, Bytes: bytes}, device.Region{Buffer: n.state.Values, Bytes: bytes})
}

// After enqueues the computation of the norms. Call it after the optimizer's step.
func (n *Norms) After(s device.Stream) error {
	if err := s.Run(n.program); err != nil {
		return fmt.Errorf("norms of parameters: %w", err)
	}
	return s.Copy(device.Region{Buffer: n.host, Bytes: 3 * n.stride},
		device.Region{Buffer: n.partials, Bytes: 3 * n.stride})
}

// Result returns the norms, in the order of the flat buffer. Wait for the stream first. The result is valid until the
// next After. unscale is the factor that removes the loss scale.
func (n *Norms) Result(unscale float64) []ParamNorms {
	mem, at := n.host.Host(), int64(0)
	for i, chunks := range n.chunks {
		norm := func(kind int64) float64 {
			sum := 0.0
			for c := range int64(chunks) {
				sum += math.Float64frombits(binary.LittleEndian.Uint64(mem[kind*n.stride+at+8*c:]))
			}
			return math.Sqrt(sum)
		}
		n.all[i].Gradient, n.all[i].Weight, n.all[i].Update = norm(0)*unscale, norm(1), norm(2)
		at += (int64(chunks)*8 + 63) / 64 * 64
	}
	return n.all
}
