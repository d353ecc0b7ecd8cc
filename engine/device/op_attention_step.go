package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// AttentionStep computes causal attention for the next position of each sample. The keys and values of earlier
// positions are cached: sample n has lengths[n] cached positions. The query of the next position sees their keys and
// its own key:
//
//	s[j] = q·k[j] / sqrt(D)      p = softmax of s over j      dst = sum_j p[j]·v[j]
//
//	in   qkv (N, 1, 3C), with q, k and v in this order in each row
//	     past (N, T, 3C): the rows qkv of earlier positions; their q, and rows from lengths[n] on, are not read
//	     lengths (N), i32, 0 to T
//	out  dst (N, 1, C)
//
// dst equals row lengths[n] of Attention over all rows, up to rounding. Training does not use this op: it has no
// gradient.
type AttentionStep struct{ Heads int }

// Kind implements Op.
func (AttentionStep) Kind() string { return "attention_step" }

// Infer implements Op.
func (op AttentionStep) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 3); err != nil {
		return nil, err
	}
	qkv, past := in[0], in[1]
	if err := firstError(wantDims(op, "qkv", qkv, 3), wantRows(op, "qkv", qkv), wantDims(op, "past", past, 3)); err != nil {
		return nil, err
	}
	n, row := qkv.Shape[0], qkv.Shape[2]
	if row%3 != 0 {
		return nil, fmt.Errorf("%s: qkv: got rows of %d channels, want a multiple of 3", op.Kind(), row)
	}
	if op.Heads < 1 || row/3%op.Heads != 0 {
		return nil, fmt.Errorf("%s: heads: got %d, want a divisor of the %d channels", op.Kind(), op.Heads, row/3)
	}
	err := firstError(wantShape(op, "qkv", qkv, n, 1, row),
		wantShape(op, "past", past, n, past.Shape[1], row), wantType(op, "past", past, qkv.DType),
		wantShape(op, "lengths", in[2], n), wantType(op, "lengths", in[2], tensor.I32))
	return []TensorSpec{Spec(qkv.DType, n, 1, row/3)}, err
}

// FLOPs implements Coster. It counts the two products over all T cached positions and the new one.
func (op AttentionStep) FLOPs(in, out []TensorSpec) int64 {
	return 4 * out[0].Shape.Elements() * int64(in[1].Shape[1]+1)
}
