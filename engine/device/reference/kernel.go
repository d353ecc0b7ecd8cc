package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// kernel is an op with its plain operand specs.
type kernel struct {
	dev     *Device
	op      device.Op
	in, out []device.TensorSpec
	wide    bool // compute in f64
	inPlace []device.Alias
	closed  bool
}

// Compile implements device.Device.
func (d *Device) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	if op == nil {
		return nil, fmt.Errorf("reference: compile: got no op")
	}
	k := &kernel{dev: d, op: op}
	var err error
	if k.in, err = plain(in, "input"); err != nil {
		return nil, fmt.Errorf("reference: %s: %w", op.Kind(), err)
	}
	want, err := op.Infer(k.in)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	if k.out, err = plain(out, "output"); err != nil {
		return nil, fmt.Errorf("reference: %s: %w", op.Kind(), err)
	}
	if len(out) != len(want) {
		return nil, fmt.Errorf("reference: %s: got %d outputs, want %d", op.Kind(), len(out), len(want))
	}
	for i, w := range want {
		if k.out[i].DType != w.DType || !k.out[i].Shape.Equal(w.Shape) {
			return nil, fmt.Errorf("reference: %s: output %d: got %v, want %v", op.Kind(), i, k.out[i], w)
		}
	}
	if err := supported(op, k.in, k.out); err != nil {
		return nil, fmt.Errorf("reference: %s: %w", op.Kind(), err)
	}
	if err := k.sizeOpaque(); err != nil {
		return nil, fmt.Errorf("reference: %s: %w", op.Kind(), err)
	}
	k.wide = computesWide(op, k.in, k.out)
	k.inPlace = inPlace(op, k.in, k.out)
	return k, nil
}

// plain checks specs and answers them in the plain layout.
func plain(specs []device.TensorSpec, side string) ([]device.TensorSpec, error) {
	out := make([]device.TensorSpec, len(specs))
	for i, s := range specs {
		if s.DType < tensor.F32 || s.DType > tensor.Opaque {
			return nil, fmt.Errorf("%s %d: got element type %v", side, i, s.DType)
		}
		if err := s.Shape.Check(); err != nil {
			return nil, fmt.Errorf("%s %d: %w", side, i, err)
		}
		if s.Layout != device.Plain && s.Layout != device.Any {
			return nil, fmt.Errorf("%s %d: got layout %d, want plain or any", side, i, s.Layout)
		}
		out[i] = device.TensorSpec{Shape: s.Shape.Clone(), DType: s.DType}
		if s.DType == tensor.Opaque {
			out[i].Bytes = s.Bytes
		} else if s.Bytes != 0 && s.Bytes != out[i].Size() {
			return nil, fmt.Errorf("%s %d: %v: got %d bytes, want %d", side, i, s, s.Bytes, out[i].Size())
		}
	}
	return out, nil
}

// sizeOpaque fills in the bytes of opaque operands: saved state belongs to an image, the first operand on the other side or the same.
func (k *kernel) sizeOpaque() error {
	var elements, width int64 // of the saved state: how many entries of how many bytes
	switch op := k.op.(type) {
	case device.BatchNormApply, device.BatchNormDiffReduce:
		elements, width = k.in[0].Shape.Elements(), maskBytes
	case device.MaxPool2D:
		elements, width = k.out[0].Shape.Elements(), argmaxBytes
		if pixels := int64(k.in[0].Shape[2]) * int64(k.in[0].Shape[3]); pixels > 1<<31-1 {
			return fmt.Errorf("%w: images of %d pixels", device.ErrUnsupported, pixels)
		}
	case device.MaxPool2DDiff:
		elements, width = k.in[0].Shape.Elements(), argmaxBytes
		if pixels := int64(op.Height) * int64(op.Width); pixels > 1<<31-1 {
			return fmt.Errorf("%w: images of %d pixels", device.ErrUnsupported, pixels)
		}
	}
	for _, side := range [][]device.TensorSpec{k.in, k.out} {
		for i := range side {
			if side[i].DType != tensor.Opaque {
				continue
			}
			if side[i].Bytes != 0 && side[i].Bytes != elements*width {
				return fmt.Errorf("saved state: got %d bytes, want %d", side[i].Bytes, elements*width)
			}
			side[i].Bytes = elements * width
		}
	}
	return nil
}

// supported says whether the element types can be computed with; op.Infer has checked those that the op fixes.
func supported(op device.Op, in, out []device.TensorSpec) error {
	var fixed []int // inputs that are no real numbers
	switch op := op.(type) {
	case device.Transpose, device.Reshape, device.Concat, device.Slice, device.Pad, device.Broadcast, device.Fill:
		return notOpaque(in, out)
	case device.Reorder:
		return notOpaque(in, out)
	case device.ImageNormalize:
		fixed = []int{0}
	case device.SoftmaxCrossEntropy, device.SoftmaxCrossEntropyDiff:
		fixed = []int{1}
	case device.Dropout:
		fixed = []int{1, 2}
	case device.MaxPool2DDiff:
		fixed = []int{1}
	case device.BatchNormDiffReduce:
		if op.ReLU && op.Add {
			fixed = []int{len(in) - 1}
		}
	case device.SGD, device.AdamW:
		if dt := in[2].DType; dt != tensor.F32 && dt != tensor.F64 {
			return fmt.Errorf("%w: value of type %v, want f32 or f64", device.ErrUnsupported, dt)
		}
	case device.Conv2D, device.Conv2DDiffSrc, device.Conv2DDiffWeights, device.Linear, device.LinearDiffSrc, device.LinearDiffWeights,
		device.BatchNormStats, device.BatchNormApply, device.BatchNormDiffApply, device.BatchNormRunning,
		device.MaxPool2D, device.AvgPool2D, device.AvgPool2DDiff, device.GlobalAvgPool, device.GlobalAvgPoolDiff,
		device.Unary, device.UnaryDiff, device.Binary, device.Scale, device.Reduce, device.SumSquares, device.GradControl:
	default:
		return fmt.Errorf("%w: op of type %T", device.ErrUnsupported, op)
	}
	for i, s := range in {
		if !s.DType.IsFloat() && !contains(fixed, i) {
			return fmt.Errorf("%w: input %d of type %v, want real numbers", device.ErrUnsupported, i, s.DType)
		}
	}
	return nil
}

func notOpaque(in, out []device.TensorSpec) error {
	for _, s := range append(in[:len(in):len(in)], out...) {
		if s.DType == tensor.Opaque {
			return fmt.Errorf("got opaque state, want elements")
		}
	}
	return nil
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// computesWide says whether an op is computed in f64: when its principal operand is.
func computesWide(op device.Op, in, out []device.TensorSpec) bool {
	switch op.(type) {
	case device.SGD, device.AdamW:
		return in[2].DType == tensor.F64
	case device.ImageNormalize, device.Fill:
		return out[0].DType == tensor.F64
	}
	return in[0].DType == tensor.F64
}

// inPlace lists what may share memory. Operands are decoded before anything is written, so every pair of equal size
// would do; offered are those that devices commonly can.
func inPlace(op device.Op, in, out []device.TensorSpec) []device.Alias {
	var inputs []int // candidates for the memory of one output
	output := 0
	switch op := op.(type) {
	case device.Unary, device.Scale, device.Dropout, device.Reshape, device.SoftmaxCrossEntropyDiff:
		inputs = []int{0}
	case device.UnaryDiff, device.Binary:
		inputs = []int{0, 1}
	case device.Reorder:
		if op.To == in[0].DType {
			inputs = []int{0}
		}
	case device.BatchNormApply:
		inputs = []int{0}
		if op.Add {
			inputs = append(inputs, 5)
		}
	case device.BatchNormDiffReduce:
		if output = 2; op.Add || op.Two {
			inputs = append(inputs, 5)
		}
		if op.Two {
			inputs = append(inputs, 6)
		}
	case device.BatchNormDiffApply:
		inputs = []int{0, 5}
	}
	var pairs []device.Alias
	for _, i := range inputs {
		if in[i].Same(out[output]) || in[i].Size() == out[output].Size() && op.Kind() == "reshape" {
			pairs = append(pairs, device.Alias{Out: output, In: i})
		}
	}
	return pairs
}

func (k *kernel) In() []device.TensorSpec  { return append([]device.TensorSpec(nil), k.in...) }
func (k *kernel) Out() []device.TensorSpec { return append([]device.TensorSpec(nil), k.out...) }
func (k *kernel) Workspace() int64         { return 0 }
func (k *kernel) InPlace() []device.Alias  { return append([]device.Alias(nil), k.inPlace...) }

func (k *kernel) Close() error {
	if k.closed {
		return fmt.Errorf("reference: %s: kernel closed twice", k.op.Kind())
	}
	k.closed = true
	return nil
}

func (k *kernel) run(in, out []operand) error {
	if k.wide {
		return compute[float64](k.op, in, out)
	}
	return compute[float32](k.op, in, out)
}

// compute runs an op in T. It lists every op of package device.
func compute[T real](op device.Op, in, out []operand) error {
	switch op := op.(type) {
	case device.Conv2D:
		conv2D[T](op, in, out)
	case device.Conv2DDiffSrc:
		conv2DDiffSrc[T](op, in, out)
	case device.Conv2DDiffWeights:
		conv2DDiffWeights[T](op, in, out)
	case device.Linear:
		linear[T](in, out)
	case device.LinearDiffSrc:
		linearDiffSrc[T](in, out)
	case device.LinearDiffWeights:
		linearDiffWeights[T](op, in, out)
	case device.BatchNormStats:
		batchNormStats[T](op, in, out)
	case device.BatchNormApply:
		batchNormApply[T](op, in, out)
	case device.BatchNormDiffReduce:
		batchNormDiffReduce[T](op, in, out)
	case device.BatchNormDiffApply:
		batchNormDiffApply[T](op, in, out)
	case device.BatchNormRunning:
		batchNormRunning[T](op, in, out)
	case device.MaxPool2D:
		maxPool2D[T](op, in, out)
	case device.MaxPool2DDiff:
		maxPool2DDiff[T](in, out)
	case device.AvgPool2D:
		avgPool2D[T](op, in, out)
	case device.AvgPool2DDiff:
		avgPool2DDiff[T](op, in, out)
	case device.GlobalAvgPool:
		globalAvgPool[T](in, out)
	case device.GlobalAvgPoolDiff:
		globalAvgPoolDiff[T](in, out)
	case device.Unary:
		unary[T](op, in, out)
	case device.UnaryDiff:
		unaryDiff[T](op, in, out)
	case device.Binary:
		binaryOp[T](op, in, out)
	case device.Scale:
		scale[T](in, out)
	case device.Fill:
		fill[T](op, out)
	case device.Dropout:
		dropout[T](op, in, out)
	case device.Reorder:
		reorder[T](in, out)
	case device.Transpose:
		transpose(op, in, out)
	case device.Reshape:
		copy(out[0].mem, in[0].mem)
	case device.Concat:
		concat(op, in, out)
	case device.Slice:
		slice(op, in, out)
	case device.Pad:
		pad(op, in, out)
	case device.Reduce:
		reduce[T](op, in, out)
	case device.Broadcast:
		broadcast(op, in, out)
	case device.SoftmaxCrossEntropy:
		return softmaxCrossEntropy[T](op, in, out)
	case device.SoftmaxCrossEntropyDiff:
		return softmaxCrossEntropyDiff[T](op, in, out)
	case device.ImageNormalize:
		imageNormalize[T](op, in, out)
	case device.SumSquares:
		sumSquares(op, in, out)
	case device.GradControl:
		gradControl(op, in, out)
	case device.SGD:
		sgd[T](op, in, out)
	case device.AdamW:
		adamW[T](op, in, out)
	}
	return nil
}
