package bookkeeping

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Sizes of one entry of saved state, in bytes.
const (
	MaskBytes   = 1 // mask of BatchNormApply: 1 where z > 0, else 0
	ArgmaxBytes = 4 // argmax of MaxPool2D: index of the maximum in its (H, W) image as an int32; -1 if there is none
)

// Kernel is an op with its plain operand specs.
type Kernel struct {
	Op device.Op

	dev     *Device
	in, out []device.TensorSpec
	shared  []device.Alias
	closed  bool
}

// Compile implements device.Device.
func (d *Device) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	if op == nil {
		return nil, fmt.Errorf("%s: compile: got no op", d.Name)
	}
	k := &Kernel{dev: d, Op: op}
	var err error
	if k.in, err = plain(in, "input"); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.Name, op.Kind(), err)
	}
	want, err := op.Infer(k.in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	if k.out, err = plain(out, "output"); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.Name, op.Kind(), err)
	}
	if len(out) != len(want) {
		return nil, fmt.Errorf("%s: %s: got %d outputs, want %d", d.Name, op.Kind(), len(out), len(want))
	}
	for i, w := range want {
		if k.out[i].DType != w.DType || !k.out[i].Shape.Equal(w.Shape) {
			return nil, fmt.Errorf("%s: %s: output %d: got %v, want %v", d.Name, op.Kind(), i, k.out[i], w)
		}
	}
	if err := supported(op, k.in, k.out); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.Name, op.Kind(), err)
	}
	if err := k.sizeOpaque(); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.Name, op.Kind(), err)
	}
	k.shared = inPlace(op, k.in, k.out)
	return k, nil
}

// plain checks specs and returns them in the plain layout.
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

// sizeOpaque sets the sizes of opaque operands. Opaque state belongs to an image, which is the first input or the first
// output.
func (k *Kernel) sizeOpaque() error {
	var image device.TensorSpec
	width := int64(0) // bytes per element of the image
	switch op := k.Op.(type) {
	case device.BatchNormApply, device.BatchNormDiffReduce:
		image, width = k.in[0], MaskBytes
	case device.MaxPool2D:
		image, width = k.out[0], ArgmaxBytes
		if pixels := int64(k.in[0].Shape[2]) * int64(k.in[0].Shape[3]); pixels > 1<<31-1 {
			return fmt.Errorf("%w: images of %d pixels", device.ErrUnsupported, pixels)
		}
	case device.MaxPool2DDiff:
		image, width = k.in[0], ArgmaxBytes
		if pixels := int64(op.Height) * int64(op.Width); pixels > 1<<31-1 {
			return fmt.Errorf("%w: images of %d pixels", device.ErrUnsupported, pixels)
		}
	}
	bytes := image.Shape.Elements() * width
	if width > 0 && k.dev.Saved != nil {
		bytes = k.dev.Saved(k.Op, image)
	}
	for _, side := range [][]device.TensorSpec{k.in, k.out} {
		for i := range side {
			if side[i].DType != tensor.Opaque {
				continue
			}
			if side[i].Bytes != 0 && side[i].Bytes != bytes {
				return fmt.Errorf("saved state: got %d bytes, want %d", side[i].Bytes, bytes)
			}
			side[i].Bytes = bytes
		}
	}
	return nil
}

// supported returns an error for element types that the device cannot compute. It need not check operands whose type
// the op determines, because op.Infer has checked them.
func supported(op device.Op, in, out []device.TensorSpec) error {
	var fixed []int // positions of inputs that are not real numbers
	switch op := op.(type) {
	case device.ImageNormalize:
		fixed = []int{0}
	case device.SoftmaxCrossEntropy:
		if fixed = []int{1}; op.Mixed {
			fixed = append(fixed, 2)
		}
	case device.SoftmaxCrossEntropyDiff:
		if fixed = []int{1}; op.Mixed {
			fixed = append(fixed, 4)
		}
	case device.Dropout:
		fixed = []int{1, 2}
	case device.MaxPool2DDiff, device.BatchNormMerge:
		fixed = []int{1}
	case device.BatchNormDiffReduce:
		if op.ReLU && op.Add {
			fixed = []int{len(in) - 1}
		}
	case device.SGD, device.AdamW, device.MovingAverage:
		if dt := in[2].DType; dt != tensor.F32 && dt != tensor.F64 {
			return fmt.Errorf("%w: value of type %v, want f32 or f64", device.ErrUnsupported, dt)
		}
	case device.Conv2D, device.Conv2DDiffSrc, device.Conv2DDiffWeights, device.Linear, device.LinearDiffSrc,
		device.LinearDiffWeights,
		device.BatchNormStats, device.BatchNormApply, device.BatchNormDiffApply, device.BatchNormRunning,
		device.MaxPool2D, device.AvgPool2D, device.AvgPool2DDiff, device.GlobalAvgPool, device.GlobalAvgPoolDiff,
		device.Unary, device.UnaryDiff, device.Binary, device.Scale, device.Reduce, device.SumSquares,
		device.GradControl:
	default:
		if _, ok := op.(device.Computer); !ok && !device.Builtin(op) {
			return fmt.Errorf("%w: op of type %T", device.ErrUnsupported, op)
		}
		return notOpaque(in, out)
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
			return fmt.Errorf("got opaque state, want state with an element type")
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

// inPlace returns the pairs that may share memory. Devices of this package decode operands before they write outputs,
// so they could allow any pair of equal size. But inPlace returns only the pairs that other devices usually allow.
func inPlace(op device.Op, in, out []device.TensorSpec) []device.Alias {
	var inputs []int // inputs whose memory one output may use
	output := 0
	switch op := op.(type) {
	case device.Unary, device.Scale, device.Dropout, device.Reshape, device.SoftmaxCrossEntropyDiff:
		inputs = []int{0}
	case device.UnaryDiff, device.Binary:
		inputs = []int{0, 1}
	case device.BiasGELU, device.BiasGELUDiff, device.LayerNormDiff:
		inputs = []int{0}
	case device.LayerNorm:
		if output = 3; op.Add {
			inputs = []int{0, 3}
		}
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

// In implements device.Kernel.
func (k *Kernel) In() []device.TensorSpec { return append([]device.TensorSpec(nil), k.in...) }

// Out implements device.Kernel.
func (k *Kernel) Out() []device.TensorSpec { return append([]device.TensorSpec(nil), k.out...) }

// Workspace implements device.Kernel.
func (k *Kernel) Workspace() int64 {
	if k.dev.Scratch == nil {
		return 0
	}
	return k.dev.Scratch(k.Op, k.in, k.out)
}

// InPlace implements device.Kernel.
func (k *Kernel) InPlace() []device.Alias { return append([]device.Alias(nil), k.shared...) }

// Close implements device.Kernel.
func (k *Kernel) Close() error {
	if k.closed {
		return fmt.Errorf("%s: %s: kernel closed twice", k.dev.Name, k.Op.Kind())
	}
	k.closed = true
	return nil
}
