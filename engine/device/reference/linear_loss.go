package reference

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	addChecked(linearCrossEntropy[float32], linearCrossEntropy[float64])
	addChecked(linearCrossEntropyDiff[float32], linearCrossEntropyDiff[float64])
	addChecked(linearCrossEntropyBoth[float32], linearCrossEntropyBoth[float64])
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
		loss[r], rank[r] = lse[r]-logits[l], positionOf(logits, int(l))
	}
	store(out[0], loss)
	storeI32(out[1], rank)
	store(out[2], lse)
	return nil
}

// positionOf returns the top-k position of a label.
func positionOf[T real](logits []T, label int) (position int32) {
	for k, x := range logits {
		if x > logits[label] || x == logits[label] && k < label {
			position++
		}
	}
	return position
}

// rounder rounds values to a type.
type rounder[T real] struct{ operand }

func newRounder[T real](dt tensor.DType, n int) rounder[T] {
	return rounder[T]{operand{spec: device.Spec(dt, n), mem: make([]byte, int64(n)*dt.Size())}}
}

func (r rounder[T]) round(values []T) []T {
	store(r.operand, values)
	return load[T](r.operand)
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
	rounded := newRounder[T](in[0].spec.DType, classes)
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
		for k, diff := range rounded.round(logits) {
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

func linearCrossEntropyBoth[T real](op device.LinearCrossEntropyBoth, in, out []operand) error {
	src, weight, labels, scale := load[T](in[0]), load[T](in[1]), loadI32(in[2]), load[T](in[3])[0]
	classes, channels := in[1].shape()[0], in[1].shape()[1]
	if err := checkLabels(op, labels, classes); err != nil {
		return err
	}
	var bias []T
	if len(in) == 5 {
		bias = load[T](in[4])
	}
	loss, position := make([]T, len(labels)), make([]int32, len(labels))
	diffSrc, diffWeight, diffBias := make([]T, len(src)), make([]T, len(weight)), make([]T, classes)
	products, rounded := make([]T, classes), newRounder[T](in[0].spec.DType, classes)
	for r, l := range labels {
		if l < 0 {
			position[r] = -1
			continue
		}
		row := src[r*channels : (r+1)*channels]
		logitsOf(row, weight, nil, products)
		logits := rounded.round(products)
		for k, b := range bias {
			logits[k] += b
		}
		lse := logSumExp(logits)
		loss[r], position[r] = lse-logits[l], positionOf(logits, int(l))
		for k, x := range logits {
			logits[k] = exp(x - lse)
			if k == int(l) {
				logits[k]--
			}
			logits[k] *= scale
		}
		for k, diff := range rounded.round(logits) {
			diffBias[k] += diff
			addProduct(diffSrc[r*channels:(r+1)*channels], diff, weight[k*channels:])
			addProduct(diffWeight[k*channels:(k+1)*channels], diff, row)
		}
	}
	store(out[0], loss)
	storeI32(out[1], position)
	store(out[2], diffSrc)
	store(out[3], diffWeight)
	if bias != nil {
		store(out[4], diffBias)
	}
	return nil
}
