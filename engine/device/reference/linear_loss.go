package reference

import "github.com/hetero-train/hetero-train/engine/device"

func init() {
	addChecked(linearCrossEntropy[float32], linearCrossEntropy[float64])
	addChecked(linearCrossEntropyDiff[float32], linearCrossEntropyDiff[float64])
}

// logitsOf computes the logits of one row of src (C) for weight (V, C) and bias (V), which may be nil.
func logitsOf[T real](row, weight, bias, logits []T) {
	dots(logits, row, weight, len(row))
	for k, b := range bias {
		logits[k] += b
	}
}

func linearCrossEntropy[T real](op device.LinearCrossEntropy, in, out []operand) error {
	src, weight, labels := load[T](in[0]), load[T](in[1]), loadI32(in[2])
	classes, channels := in[1].shape()[0], in[1].shape()[1]
	if err := checkLabels(op, labels, classes); err != nil {
		return err
	}
	var bias []T
	if len(in) == 4 {
		bias = load[T](in[3])
	}
	loss, lse, rank := make([]T, len(labels)), make([]T, len(labels)), make([]int32, len(labels))
	logits := make([]T, classes)
	for r, l := range labels {
		if l < 0 {
			rank[r] = -1
			continue
		}
		logitsOf(src[r*channels:(r+1)*channels], weight, bias, logits)
		lse[r] = logSumExp(logits)
		loss[r] = lse[r] - logits[l]
		for k, x := range logits {
			if x > logits[l] || x == logits[l] && k < int(l) {
				rank[r]++
			}
		}
	}
	store(out[0], loss)
	storeI32(out[1], rank)
	store(out[2], lse)
	return nil
}

func linearCrossEntropyDiff[T real](op device.LinearCrossEntropyDiff, in, out []operand) error {
	src, weight, labels := load[T](in[0]), load[T](in[1]), loadI32(in[2])
	lse, scale := load[T](in[3]), load[T](in[4])[0]
	classes, channels := in[1].shape()[0], in[1].shape()[1]
	if err := checkLabels(op, labels, classes); err != nil {
		return err
	}
	var bias []T
	if len(in) == 6 {
		bias = load[T](in[5])
	}
	diffSrc, diffWeight, diffBias := make([]T, len(src)), make([]T, len(weight)), make([]T, classes)
	logits := make([]T, classes)
	rounded := operand{spec: device.Spec(in[0].spec.DType, classes),
		mem: make([]byte, int64(classes)*in[0].spec.DType.Size())}
	for r, l := range labels {
		if l < 0 {
			continue
		}
		row := src[r*channels : (r+1)*channels]
		logitsOf(row, weight, bias, logits)
		for k, x := range logits {
			logits[k] = exp(x - lse[r])
			if k == int(l) {
				logits[k]--
			}
			logits[k] *= scale
		}
		store(rounded, logits)
		for k, diff := range load[T](rounded) {
			diffBias[k] += diff
			addProduct(diffSrc[r*channels:(r+1)*channels], diff, weight[k*channels:])
			addProduct(diffWeight[k*channels:(k+1)*channels], diff, row)
		}
	}
	store(out[0], diffSrc)
	store(out[1], diffWeight)
	if bias != nil {
		store(out[2], diffBias)
	}
	return nil
}
