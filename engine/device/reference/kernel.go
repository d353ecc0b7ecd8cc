package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// run executes one launch. NewProgram has checked the operands; run returns an error if their memory was freed since
// then.
func run(s bookkeeping.Step) error {
	in, err := operands("input", s.Launch.In, s.Kernel.In())
	if err == nil {
		var out []operand
		if out, err = operands("output", s.Launch.Out, s.Kernel.Out()); err == nil {
			err = compute(s.Kernel.Op, computesWide(s.Kernel), in, out)
		}
	}
	if err != nil {
		return fmt.Errorf("launch %q: %w", s.Launch.Name, err)
	}
	return nil
}

func operands(side string, regions []device.Region, specs []device.TensorSpec) ([]operand, error) {
	out := make([]operand, len(regions))
	for i, r := range regions {
		if r.Buffer.Host() == nil {
			return nil, fmt.Errorf("%s %d: its buffer was freed", side, i)
		}
		out[i] = operand{spec: specs[i], mem: r.Host()}
	}
	return out, nil
}

// computesWide reports whether an op is computed in f64. This depends on the element type of the principal operand,
// which is the first input for most ops.
func computesWide(k *bookkeeping.Kernel) bool {
	in, out := k.In(), k.Out()
	switch k.Op.(type) {
	case device.SGD, device.AdamW, device.MovingAverage:
		return in[2].DType == tensor.F64
	case device.ImageNormalize, device.Fill, device.Embedding:
		return out[0].DType == tensor.F64
	}
	return len(in) > 0 && in[0].DType == tensor.F64
}

// computeOwn runs the kernel that an op implements (device.Computer).
func computeOwn(op device.Computer, in, out []operand) {
	decoded := func(list []operand) []device.Elements {
		all := make([]device.Elements, len(list))
		for i, o := range list {
			all[i] = device.Elements{Spec: o.spec, Values: Decode(o.spec.DType, o.mem)}
		}
		return all
	}
	results := decoded(out)
	op.Compute(decoded(in), results)
	for i, r := range results {
		copy(out[i].mem, Encode(r.Spec.DType, r.Values))
	}
}

// kernel runs an op in f32 or f64.
type kernel struct {
	narrow, wide func(op device.Op, in, out []operand) error
}

// kernels maps the kind of an op of package device to its kernel. The init function next to each kernel adds its entry,
// with add or addChecked.
var kernels = map[string]kernel{}

// addChecked adds the kernel of an op to the map kernels. It is for ops whose operands may contain invalid values.
func addChecked[Op device.Op](narrow, wide func(op Op, in, out []operand) error) {
	var op Op
	of := func(f func(op Op, in, out []operand) error) func(device.Op, []operand, []operand) error {
		return func(op device.Op, in, out []operand) error { return f(op.(Op), in, out) }
	}
	kernels[op.Kind()] = kernel{of(narrow), of(wide)}
}

// add adds the kernel of an op to the map kernels.
func add[Op device.Op](narrow, wide func(op Op, in, out []operand)) {
	of := func(f func(op Op, in, out []operand)) func(Op, []operand, []operand) error {
		return func(op Op, in, out []operand) error {
			f(op, in, out)
			return nil
		}
	}
	addChecked(of(narrow), of(wide))
}

// compute runs the kernel of an op. An op from outside package device implements its kernel itself (device.Computer).
func compute(op device.Op, wide bool, in, out []operand) error {
	if own, ok := op.(device.Computer); ok {
		computeOwn(own, in, out)
		return nil
	}
	k, ok := kernels[op.Kind()]
	if !ok {
		return fmt.Errorf("%w: op type %T", device.ErrUnsupported, op)
	}
	if wide {
		return k.wide(op, in, out)
	}
	return k.narrow(op, in, out)
}
