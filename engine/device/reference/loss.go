package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// checkLabels wants labels below the number of classes; negative ones are ignored samples.
func checkLabels(op device.Op, labels []int32, classes int) error {
	for i, l := range labels {
		if int(l) >= classes {
			return fmt.Errorf("%s: label %d: got %d, want below the %d classes", op.Kind(), i, l, classes)
		}
	}
	return nil
}

// logSumExp of one row.
func logSumExp[T real](row []T) T {
	largest := row[0]
	for _, x := range row {
		largest = max(largest, x)
	}
	var sum T
	for _, x := range row {
		sum += exp(x - largest)
	}
	return largest + logarithm(sum)
}

// target is q of a class.
func target[T real](smoothing float64, class, label, classes int) T {
	q := T(smoothing / float64(classes))
	if class == label {
		q += T(1 - smoothing)
	}
	return q
}

func softmaxCrossEntropy[T real](op device.SoftmaxCrossEntropy, in, out []operand) error {
	logits, labels := load[T](in[0]), loadI32(in[1])
	classes := in[0].shape()[1]
	if err := checkLabels(op, labels, classes); err != nil {
		return err
	}
	loss, lse, rank := make([]T, len(labels)), make([]T, len(labels)), make([]int32, len(labels))
	for n, l := range labels {
		row, label := logits[n*classes:(n+1)*classes], int(l)
		lse[n] = logSumExp(row)
		if label < 0 {
			rank[n] = -1
			continue
		}
		for k, x := range row {
			loss[n] += T(target[T](op.LabelSmoothing, k, label, classes) * (lse[n] - x))
			if x > row[label] || x == row[label] && k < label {
				rank[n]++
			}
		}
	}
	store(out[0], loss)
	storeI32(out[1], rank)
	store(out[2], lse)
	return nil
}

func softmaxCrossEntropyDiff[T real](op device.SoftmaxCrossEntropyDiff, in, out []operand) error {
	logits, labels, lse, factor := load[T](in[0]), loadI32(in[1]), load[T](in[2]), load[T](in[3])[0]
	classes := in[0].shape()[1]
	if err := checkLabels(op, labels, classes); err != nil {
		return err
	}
	for i := range logits {
		n, k := i/classes, i%classes
		if labels[n] < 0 {
			logits[i] = 0
			continue
		}
		softmax := exp(logits[i] - lse[n])
		logits[i] = (softmax - target[T](op.LabelSmoothing, k, int(labels[n]), classes)) * factor
	}
	store(out[0], logits)
	return nil
}
