//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// C constants of the functions of element-wise ops and reductions.
var (
	unaryFuncs = [...]C.int32_t{
		device.ReLU: C.HT_RELU, device.Sigmoid: C.HT_SIGMOID, device.Tanh: C.HT_TANH, device.GELU: C.HT_GELU,
		device.GELUTanh: C.HT_GELU_TANH, device.Exp: C.HT_EXP, device.Log: C.HT_LOG, device.Sqrt: C.HT_SQRT,
		device.Square: C.HT_SQUARE, device.Neg: C.HT_NEG, device.Abs: C.HT_ABS,
	}
	binaryFuncs = [...]C.int32_t{
		device.Add: C.HT_ADD, device.Sub: C.HT_SUB, device.Mul: C.HT_MUL, device.Div: C.HT_DIV, device.Max: C.HT_MAX, device.Min: C.HT_MIN,
	}
	reduceFuncs = [...]C.int32_t{device.Sum: C.HT_SUM, device.Mean: C.HT_MEAN, device.Maximum: C.HT_MAXIMUM}
)

// parameters returns an op's number and its parameter struct, which it allocates in the arena. op.Infer has checked the
// specs; parameters checks fields that Infer does not check.
func parameters(a *arena, op device.Op) (C.int32_t, unsafe.Pointer, uintptr, error) {
	switch op := op.(type) {
	case device.Conv2D:
		return with(a, C.HT_CONV2D, conv(op, [2]int{}, false))
	case device.Conv2DDiffSrc:
		return with(a, C.HT_CONV2D_DIFF_SRC, conv(op.Conv2D, [2]int{}, false))
	case device.Conv2DDiffWeights:
		return with(a, C.HT_CONV2D_DIFF_WEIGHTS, conv(op.Conv2D, op.Kernel, op.Bias))
	case device.Linear:
		return with(a, C.HT_LINEAR, C.ht_linear_params{})
	case device.LinearDiffSrc:
		return with(a, C.HT_LINEAR_DIFF_SRC, C.ht_linear_params{})
	case device.LinearDiffWeights:
		return with(a, C.HT_LINEAR_DIFF_WEIGHTS, C.ht_linear_params{bias: flag(op.Bias)})

	case device.BatchNormStats:
		return with(a, C.HT_BATCH_NORM_STATS, C.ht_batch_norm_params{group: C.int32_t(op.Group)})
	case device.BatchNormMerge:
		return without(C.HT_BATCH_NORM_MERGE)
	case device.BatchNormApply:
		return with(a, C.HT_BATCH_NORM_APPLY, C.ht_batch_norm_params{
			group: C.int32_t(op.Group), eps: C.double(op.Eps), relu: flag(op.ReLU), add: flag(op.Add)})
	case device.BatchNormDiffReduce:
		return with(a, C.HT_BATCH_NORM_DIFF_REDUCE, C.ht_batch_norm_params{
			group: C.int32_t(op.Group), eps: C.double(op.Eps), relu: flag(op.ReLU), add: flag(op.Add), two: flag(op.Two)})
	case device.BatchNormDiffApply:
		return with(a, C.HT_BATCH_NORM_DIFF_APPLY, C.ht_batch_norm_params{
			group: C.int32_t(op.Group), eps: C.double(op.Eps), relu: flag(op.ReLU), count: C.int64_t(op.Count)})
	case device.BatchNormRunning:
		counts := copied(a, op.Counts, func(n int64) C.int64_t { return C.int64_t(n) })
		return with(a, C.HT_BATCH_NORM_RUNNING, C.ht_batch_norm_running_params{
			momentum: C.double(op.Momentum), counts: counts, groups: C.int64_t(len(op.Counts))})

	case device.MaxPool2D:
		return with(a, C.HT_MAX_POOL2D, pool(op.Window, op.Kernel, op.Train, false))
	case device.MaxPool2DDiff:
		return with(a, C.HT_MAX_POOL2D_DIFF, pool(op.Window, op.Kernel, op.Train, false))
	case device.AvgPool2D:
		return with(a, C.HT_AVG_POOL2D, pool(op.Window, op.Kernel, false, op.CountPadding))
	case device.AvgPool2DDiff:
		return with(a, C.HT_AVG_POOL2D_DIFF, pool(op.Window, op.Kernel, false, op.CountPadding))
	case device.GlobalAvgPool:
		return without(C.HT_GLOBAL_AVG_POOL)
	case device.GlobalAvgPoolDiff:
		return without(C.HT_GLOBAL_AVG_POOL_DIFF)

	case device.Unary:
		return with(a, C.HT_UNARY, C.ht_elementwise_params{_func: unaryFuncs[op.Func]})
	case device.UnaryDiff:
		return with(a, C.HT_UNARY_DIFF, C.ht_elementwise_params{_func: unaryFuncs[op.Func]})
	case device.Binary:
		return with(a, C.HT_BINARY, C.ht_elementwise_params{_func: binaryFuncs[op.Func]})
	case device.Scale:
		return without(C.HT_SCALE)
	case device.Fill:
		return with(a, C.HT_FILL, C.ht_fill_params{value: C.double(op.Value)})
	case device.Dropout:
		return with(a, C.HT_DROPOUT, C.ht_dropout_params{p: C.double(op.P), stream: C.uint32_t(op.Stream)})

	case device.Reorder:
		return without(C.HT_REORDER)
	case device.Transpose:
		return with(a, C.HT_TRANSPOSE, move(0, op.Perm, 0, 0))
	case device.Reshape:
		return without(C.HT_RESHAPE)
	case device.Concat:
		return with(a, C.HT_CONCAT, move(0, []int{op.Axis}, 0, 0))
	case device.Slice:
		return with(a, C.HT_SLICE, move(0, []int{op.Axis}, op.Start, op.Size))
	case device.Pad:
		return with(a, C.HT_PAD, move(0, []int{op.Axis}, op.Start, op.Size))
	case device.Reduce:
		return with(a, C.HT_REDUCE, move(reduceFuncs[op.Func], op.Axes, 0, 0))
	case device.Broadcast:
		return with(a, C.HT_BROADCAST, move(0, op.Axes, 0, 0))

	case device.SoftmaxCrossEntropy:
		return with(a, C.HT_SOFTMAX_CROSS_ENTROPY, C.ht_loss_params{label_smoothing: C.double(op.LabelSmoothing), mixed: flag(op.Mixed)})
	case device.SoftmaxCrossEntropyDiff:
		return with(a, C.HT_SOFTMAX_CROSS_ENTROPY_DIFF, C.ht_loss_params{label_smoothing: C.double(op.LabelSmoothing), mixed: flag(op.Mixed)})
	case device.ImageNormalize:
		float := func(f float32) C.float { return C.float(f) }
		return with(a, C.HT_IMAGE_NORMALIZE, C.ht_image_normalize_params{
			mean: copied(a, op.Mean, float), std: copied(a, op.Std, float), channels: C.int32_t(len(op.Mean))})

	case device.SumSquares:
		return with(a, C.HT_SUM_SQUARES, C.ht_optim_params{chunk: C.int64_t(op.Chunk)})
	case device.GradControl:
		return with(a, C.HT_GRAD_CONTROL, C.ht_optim_params{max_norm: C.double(op.MaxNorm)})
	case device.SGD:
		return with(a, C.HT_SGD, C.ht_optim_params{
			momentum: C.float(op.Momentum), nesterov: flag(op.Nesterov),
			segments: copied(a, op.Segments, segment), num_segments: C.int64_t(len(op.Segments))})
	case device.AdamW:
		return with(a, C.HT_ADAMW, C.ht_optim_params{
			beta1: C.float(op.Beta1), beta2: C.float(op.Beta2), eps: C.float(op.Eps),
			segments: copied(a, op.Segments, segment), num_segments: C.int64_t(len(op.Segments))})
	case device.MovingAverage:
		return without(C.HT_MOVING_AVERAGE)

	case device.Embedding:
		return without(C.HT_EMBEDDING)
	case device.EmbeddingDiff:
		return with(a, C.HT_EMBEDDING_DIFF, C.ht_embedding_params{
			rows: C.int64_t(op.Rows), positions: flag(op.Positions), accumulate: flag(op.Accumulate)})
	case device.LayerNorm:
		return with(a, C.HT_LAYER_NORM, C.ht_layer_norm_params{eps: C.double(op.Eps), add: flag(op.Add)})
	case device.LayerNormDiff:
		return with(a, C.HT_LAYER_NORM_DIFF, C.ht_layer_norm_params{plus: flag(op.Plus)})
	case device.BiasGELU:
		return with(a, C.HT_BIAS_GELU, C.ht_elementwise_params{_func: unaryFuncs[op.Func]})
	case device.BiasGELUDiff:
		return with(a, C.HT_BIAS_GELU_DIFF, C.ht_elementwise_params{_func: unaryFuncs[op.Func]})
	case device.Attention:
		return with(a, C.HT_ATTENTION, attention(op))
	case device.AttentionDiff:
		return with(a, C.HT_ATTENTION_DIFF, attention(op.Attention))
	case device.AttentionStep:
		return with(a, C.HT_ATTENTION_STEP, C.ht_attention_params{heads: C.int32_t(op.Heads), kv_heads: C.int32_t(op.SharedHeads())})
	case device.LinearCrossEntropy:
		return without(C.HT_LINEAR_CROSS_ENTROPY)
	case device.LinearCrossEntropyDiff:
		return without(C.HT_LINEAR_CROSS_ENTROPY_DIFF)
	}
	return 0, nil, 0, fmt.Errorf("%w: op type %T", device.ErrUnsupported, op)
}

func with[T any](a *arena, code C.int32_t, params T) (C.int32_t, unsafe.Pointer, uintptr, error) {
	return code, unsafe.Pointer(put(a, params)), unsafe.Sizeof(params), nil
}

func without(code C.int32_t) (C.int32_t, unsafe.Pointer, uintptr, error) { return code, nil, 0, nil }

// copied returns a copy of list in the arena; nil for an empty list.
func copied[From, To any](a *arena, list []From, convert func(From) To) *To {
	out := array[To](a, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return unsafe.SliceData(out)
}

func pair(v [2]int) [2]C.int32_t { return [2]C.int32_t{C.int32_t(v[0]), C.int32_t(v[1])} }

func conv(op device.Conv2D, kernel [2]int, bias bool) C.ht_conv2d_params {
	return C.ht_conv2d_params{
		stride: pair(op.Stride), padding: pair(op.Padding), dilation: pair(op.Dilation), kernel: pair(kernel),
		groups: C.int32_t(op.Groups), bias: flag(bias),
	}
}

func pool(w device.Window, kernel [2]int, train, countPadding bool) C.ht_pool2d_params {
	return C.ht_pool2d_params{
		stride: pair(w.Stride), padding: pair(w.Padding), dilation: pair(w.Dilation), kernel: pair(kernel),
		train: flag(train), count_padding: flag(countPadding),
	}
}

func attention(op device.Attention) C.ht_attention_params {
	return C.ht_attention_params{
		p: C.double(op.P), stream: C.uint32_t(op.Stream), heads: C.int32_t(op.Heads), kv_heads: C.int32_t(op.SharedHeads()),
		packed: flag(op.Packed), causal: flag(op.Causal), lengths: flag(op.Lengths),
	}
}

func move(function C.int32_t, axes []int, start, size int) C.ht_move_params {
	p := C.ht_move_params{_func: function, num_axes: C.int32_t(len(axes)), start: C.int64_t(start), size: C.int64_t(size)}
	for i, axis := range axes {
		p.axes[i] = C.int32_t(axis)
	}
	return p
}

func segment(s device.Segment) C.ht_segment {
	return C.ht_segment{offset: C.int64_t(s.Offset), length: C.int64_t(s.Length), weight_decay: C.float(s.WeightDecay), lr_scale: C.float(s.LRScale)}
}
