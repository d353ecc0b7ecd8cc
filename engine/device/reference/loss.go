package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

func init() {
	addChecked(softmaxCrossEntropy[float32], softmaxCrossEntropy[float64])
	addChecked(softmaxCrossEntropyDiff[float32], softmaxCrossEntropyDiff[float64])
}

// checkLabels returns an error unless all labels are below the number of classes; negative labels mark ignored samples.
func checkLabels(op device.Op, labels []int32, classes int) error {
	for i, l := range labels {
		if int(l) >= classes {
			return fmt.Errorf("%s: label %d: got %d, want below the %d classes", op.Kind(), i, l, classes)
		}
	}
	return nil
}

// logSumExp returns the logarithm of the sum of exponentials of one row.
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

// targets holds the labels of each sample, and the weight (lambda) of the first label: 1 unless samples are mixed.
type targets[T real] struct {
	label, second []int32
	lambda        []T
}

func loadTargets[T real](op device.Op, in []operand, mixed bool) (targets[T], error) {
	classes := in[0].shape()[1]
	t := targets[T]{label: loadI32(in[1])}
	if err := checkLabels(op, t.label, classes); err != nil || !mixed {
		return t, err
	}
	t.second, t.lambda = loadI32(in[len(in)-2]), load[T](in[len(in)-1])
	for i, l := range t.second {
		if t.label[i] >= 0 && (l < 0 || int(l) >= classes) {
			return t, fmt.Errorf("%s: second label %d: got %d, want 0 to %d", op.Kind(), i, l, classes-1)
		}
	}
	return t, nil
}

// of returns the target probability q of a class for sample n.
func (t targets[T]) of(n, class, classes int, smoothing float64) T {
	q := T(smoothing / float64(classes))
	first, second := T(1), T(0)
	if t.lambda != nil {
		first, second = t.lambda[n], 1-t.lambda[n]
	}
	if class == int(t.label[n]) {
		q += T(T(1-smoothing) * first)
	}
	if second != 0 && class == int(t.second[n]) {
		q += T(T(1-smoothing) * second)
	}
	return q
}

// main returns the label with the larger weight.
func (t targets[T]) main(n int) int {
	if t.lambda != nil && t.lambda[n] < 0.5 {
		return int(t.second[n])
	}
	return int(t.label[n])
}

func softmaxCrossEntropy[T real](op device.SoftmaxCrossEntropy, in, out []operand) error {
	logits, classes := load[T](in[0]), in[0].shape()[1]
	t, err := loadTargets[T](op, in, op.Mixed)
	if err != nil {
		return err
	}
	labels := t.label
	loss, lse, position := make([]T, len(labels)), make([]T, len(labels)), make([]int32, len(labels))
	for n, l := range labels {
		row := logits[n*classes : (n+1)*classes]
		lse[n] = logSumExp(row)
		if l < 0 {
			position[n] = -1
			continue
		}
		label := t.main(n)
		for k, x := range row {
			loss[n] += T(t.of(n, k, classes, op.LabelSmoothing) * (lse[n] - x))
			if x > row[label] || x == row[label] && k < label {
				position[n]++
			}
		}
	}
	store(out[0], loss)
	storeI32(out[1], position)
	store(out[2], lse)
	return nil
}

func softmaxCrossEntropyDiff[T real](op device.SoftmaxCrossEntropyDiff, in, out []operand) error {
	logits, lse, factor := load[T](in[0]), load[T](in[2]), load[T](in[3])[0]
	classes := in[0].shape()[1]
	t, err := loadTargets[T](op, in, op.Mixed)
	if err != nil {
		return err
	}
	for i := range logits {
		n, k := i/classes, i%classes
		if t.label[n] < 0 {
			logits[i] = 0
			continue
		}
		softmax := exp(logits[i] - lse[n])
		logits[i] = (softmax - t.of(n, k, classes, op.LabelSmoothing)) * factor
	}
	store(out[0], logits)
	return nil
}
