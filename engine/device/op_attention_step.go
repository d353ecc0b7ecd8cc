package device

import (
	"cmp"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// AttentionStep computes causal attention for the next position of each sample. The keys and values of earlier
// positions are cached: sample n has lengths[n] cached positions. The query of the next position sees their keys and
// its own key:
//
//	s[j] = q·k[j] / sqrt(D)      p = softmax of s over j      dst = sum_j p[j]·v[j]
//
//	in   q (N, 1, C); k; v, each (N, 1, E), with E = C·KVHeads/Heads: the next position
//	     past_k; past_v, each (N, T, E): the earlier positions; rows from lengths[n] on are not read
//	     lengths (N), i32, 0 to T
//	out  dst (N, 1, C)
//
// dst equals row lengths[n] of Attention over all rows, up to rounding. Training does not use this op: it has no
// gradient.
type AttentionStep struct {
	Heads   int
	KVHeads int // number of key/value heads, a divisor of Heads; 0: as many as Heads
}

// Kind implements Op.
func (AttentionStep) Kind() string { return "attention_step" }

// SharedHeads returns the number of key/value heads.
func (op AttentionStep) SharedHeads() int { return cmp.Or(op.KVHeads, op.Heads) }

// Parameters implements Parametric.
func (op AttentionStep) Parameters() any {
	op.KVHeads = op.SharedHeads()
	return op
}

// Infer implements Op.
func (op AttentionStep) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := firstError(operands(op, in, 6), wantGroups(op, op.Heads, op.KVHeads)); err != nil {
		return nil, err
	}
	q, past := in[0], in[3]
	if err := firstError(wantDims(op, "q", q, 3), wantRows(op, "q", q), wantDims(op, "past_k", past, 3)); err != nil {
		return nil, err
	}
	n, c := q.Shape[0], q.Shape[2]
	if c%op.Heads != 0 {
		return nil, fmt.Errorf("%s: heads: got %d, want a divisor of the %d channels", op.Kind(), op.Heads, c)
	}
	e := c / op.Heads * op.SharedHeads()
	own, cached := Spec(q.DType, n, 1, e), Spec(q.DType, n, past.Shape[1], e)
	err := firstError(wantShape(op, "q", q, n, 1, c), sameAs(op, "k", in[1], own), sameAs(op, "v", in[2], own),
		sameAs(op, "past_k", past, cached), sameAs(op, "past_v", in[4], cached),
		wantShape(op, "lengths", in[5], n), wantType(op, "lengths", in[5], tensor.I32))
	return []TensorSpec{Spec(q.DType, n, 1, c)}, err
}

// FLOPs implements Coster. It counts the two products over all T cached positions and the new one.
func (op AttentionStep) FLOPs(in, out []TensorSpec) int64 {
	return 4 * out[0].Shape.Elements() * int64(in[3].Shape[1]+1)
}
