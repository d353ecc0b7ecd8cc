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
			if computesWide(s.Kernel) {
				err = compute[float64](s.Kernel.Op, in, out)
			} else {
				err = compute[float32](s.Kernel.Op, in, out)
			}
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

// computesWide reports whether an op is computed in f64. The type of its principal operand determines this.
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

// compute runs an op in T. It lists every op of package device; other ops implement device.Computer.
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
	case device.BatchNormMerge:
		batchNormMerge[T](in, out)
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
	case device.Embedding:
		return embedding[T](op, in, out)
	case device.EmbeddingDiff:
		return embeddingDiff[T](op, in, out)
	case device.LayerNorm:
		layerNorm[T](op, in, out)
	case device.LayerNormDiff:
		layerNormDiff[T](op, in, out)
	case device.BiasGELU:
		biasGELU[T](op, in, out)
	case device.BiasGELUDiff:
		biasGELUDiff[T](op, in, out)
	case device.Attention:
		attention[T](op, in, out)
	case device.AttentionDiff:
		attentionDiff[T](op, in, out)
	case device.AttentionStep:
		attentionStep[T](op, in, out)
	case device.LinearCrossEntropy:
		return linearCrossEntropy[T](op, in, out)
	case device.LinearCrossEntropyDiff:
		return linearCrossEntropyDiff[T](op, in, out)
	case device.SumSquares:
		sumSquares(op, in, out)
	case device.GradControl:
		gradControl(op, in, out)
	case device.SGD:
		sgd[T](op, in, out)
	case device.AdamW:
		adamW[T](op, in, out)
	case device.MovingAverage:
		movingAverage[T](in, out)
	case device.Computer:
		computeOwn(op, in, out)
	}
	return nil
}
