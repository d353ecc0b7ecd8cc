package device

import (
	"fmt"
	"reflect"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Op is one computation as plain data. Compile fixes the values of its fields. The comment of each op type lists the
// operands.
//
// In operand lists, "[x]" is an operand that exists only under the stated condition. Legend: N samples, C channels, H
// and W height and width, O output channels, K kernel extent, G statistics groups of a BatchNorm.
type Op interface {
	// Kind returns the name of the op type, such as "conv2d". It is unique.
	Kind() string
	// Infer returns the plain output specs for input specs, or an error that names the wrong operand.
	Infer(in []TensorSpec) ([]TensorSpec, error)
}

// MaxOperands is the largest number of inputs of a kernel, and also the largest number of outputs.
const MaxOperands = 16

// Aliaser is implemented by ops that update an operand in place. Output Out of each pair must be bound to the memory of
// input In.
type Aliaser interface{ Aliases() []Alias }

// Aliases returns the pairs that op requires to share memory. For most ops, it returns nil.
func Aliases(op Op) []Alias {
	if a, ok := op.(Aliaser); ok {
		return a.Aliases()
	}
	return nil
}

// Coster is implemented by ops with significant arithmetic.
type Coster interface {
	// FLOPs returns the nominal number of floating-point operations. A multiply-add counts as 2, and taps in the
	// padding count like all others.
	FLOPs(in, out []TensorSpec) int64
}

// FLOPs returns the nominal FLOPs of an op; 0 if op is not a Coster.
func FLOPs(op Op, in, out []TensorSpec) int64 {
	if c, ok := op.(Coster); ok {
		return c.FLOPs(in, out)
	}
	return 0
}

// MovedBytes returns the minimum memory traffic of a launch in bytes: the size of all operands.
func MovedBytes(in, out []TensorSpec) int64 {
	var n int64
	for _, s := range in {
		n += s.Size()
	}
	for _, s := range out {
		n += s.Size()
	}
	return n
}

// Parametric is implemented by ops whose parameters for native libraries differ from their fields. Parameters returns a
// struct with the parameters. The fields of this struct have the same names as those of the parameter struct in
// engine/device/native/hetero_device.h.
type Parametric interface{ Parameters() any }

// Parameters returns the struct with the parameters of op. For most ops, this is the op itself.
func Parameters(op Op) any {
	if p, ok := op.(Parametric); ok {
		return p.Parameters()
	}
	return op
}

// Builtin reports whether op is an op of this package. Devices have kernels for such ops.
func Builtin(op Op) bool { return reflect.TypeOf(op).PkgPath() == reflect.TypeFor[Op]().PkgPath() }

// Computer is implemented by ops from outside this package that have a kernel in Go. The reference device runs it.
// Other devices have no kernel for such an op and use its decomposition (graph.Decomposable).
type Computer interface {
	Op
	// Compute sets the values of out. It must not change the values of in.
	Compute(in, out []Elements)
}

// Elements are the elements of one operand in row-major order. They are rounded to the operand's type when Compute
// returns.
type Elements struct {
	Spec   TensorSpec
	Values []float64
}

// operands checks the number of inputs.
func operands(op Op, in []TensorSpec, want ...int) error {
	for _, n := range want {
		if len(in) == n {
			return nil
		}
	}
	return fmt.Errorf("%s: got %d inputs, want %v", op.Kind(), len(in), want)
}

// wantShape checks one operand's shape.
func wantShape(op Op, name string, got TensorSpec, want ...int) error {
	if !got.Shape.Equal(want) {
		return fmt.Errorf("%s: %s: got shape %v, want %v", op.Kind(), name, got.Shape, tensor.Shape(want))
	}
	return nil
}

// wantDims checks one operand's number of dimensions.
func wantDims(op Op, name string, got TensorSpec, want int) error {
	if len(got.Shape) != want {
		return fmt.Errorf("%s: %s: got %d dimensions %v, want %d", op.Kind(), name, len(got.Shape), got.Shape, want)
	}
	return nil
}

// wantType checks one operand's element type.
func wantType(op Op, name string, got TensorSpec, want ...tensor.DType) error {
	for _, w := range want {
		if got.DType == w {
			return nil
		}
	}
	return fmt.Errorf("%s: %s: got element type %v, want %v", op.Kind(), name, got.DType, want)
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// weightType returns the type of parameter gradients for a type of activations: f64 for f64, else f32.
func weightType(activation tensor.DType) tensor.DType {
	if activation == tensor.F64 {
		return tensor.F64
	}
	return tensor.F32
}
