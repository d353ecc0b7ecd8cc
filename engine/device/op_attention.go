package device

import (
	"cmp"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// MaxAttention is the largest number of positions of an Attention, because positions of the dropout mask have 16 bits.
const MaxAttention = 1 << 16

// Attention is multi-head attention over T positions. Head h of a tensor (N, T, C) consists of channels h·D to
// (h+1)·D-1, with D = C/Heads:
//
//	s[i, j] = q[i]·k[j] / sqrt(D)      p = softmax of s over the keys j that i sees      dst[i] = sum_j m[i, j]·p[i, j]·v[j]
//
// Query i sees keys j <= i if Causal, else all keys. With Lengths it sees only keys j < lengths[n], and rows of dst
// from lengths[n] on are zero. m[i, j] is the dropout factor: 0 or 1/(1-P), and 1 if P is 0.
//
// If KVHeads is below Heads, this is grouped-query attention: query head h uses key/value head h·KVHeads/Heads. If
// KVHeads is 1, all query heads use the same key/value head.
//
// Dropout zeroes probabilities in the same way as op Dropout. The mask depends only on (key, stream, sample id, i, j).
// The stream of head h is Stream+h, and the position of pair (i, j) is i·65536 + j. The mask does not depend on T, so a
// sample that is padded to another length has the same mask.
//
//	in   Packed: qkv (N, T, 3C), with q, k and v in this order in each row;
//	     else q (N, T, C); k; v, each (N, T, C·KVHeads/Heads)
//	     [lengths (N), i32, 0 to T, if Lengths]; [ids (N), i64; key (2), u32, if P > 0]
//	out  dst (N, T, C)
//	     lse (N, Heads, T), f32: log sum_j exp(s[i, j]), 0 for rows from lengths[n] on
//
// No device stores the scores s; AttentionDiff computes them again.
type Attention struct {
	Heads   int
	KVHeads int // number of key/value heads, a divisor of Heads; 0: as many as Heads
	Packed  bool
	Causal  bool
	Lengths bool
	P       float64 // probability of dropout, 0 <= P < 1
	Stream  uint32  // first of Heads dropout streams; no other layer may use these streams
}

// AttentionDiff computes the gradients of Attention. Rows from lengths[n] on are zero.
//
//	in   diff_dst (N, T, C); dst (N, T, C); lse (N, Heads, T), f32; then the inputs of Attention
//	out  Packed: diff_qkv (N, T, 3C); else diff_q; diff_k; diff_v, with the shapes of q, k and v
type AttentionDiff struct{ Attention }

// Kind implements Op.
func (Attention) Kind() string { return "attention" }

// Kind implements Op.
func (AttentionDiff) Kind() string { return "attention_diff" }

// Sources returns the number of operands that hold q, k and v.
func (op Attention) Sources() int {
	if op.Packed {
		return 1
	}
	return 3
}

// SharedHeads returns the number of key/value heads.
func (op Attention) SharedHeads() int { return cmp.Or(op.KVHeads, op.Heads) }

// inputs returns the number of inputs of the forward op.
func (op Attention) inputs() int {
	n := op.Sources()
	if op.Lengths {
		n++
	}
	if op.P > 0 {
		n += 2
	}
	return n
}

// check checks the operands of the forward op and returns the shape of dst. The parameter of is the op that errors
// name: the forward or the backward op.
func (op Attention) check(of Op, in []TensorSpec) (tensor.Shape, error) {
	if !(op.P >= 0 && op.P < 1) {
		return nil, fmt.Errorf("%s: probability: got %g, want 0 <= p < 1", of.Kind(), op.P)
	}
	if err := wantGroups(of, op.Heads, op.KVHeads); err != nil {
		return nil, err
	}
	src := in[0]
	if err := firstError(wantDims(of, "q", src, 3), wantRows(of, "q", src)); err != nil {
		return nil, err
	}
	n, t, c := src.Shape[0], src.Shape[1], src.Shape[2]
	if op.Packed {
		if c%3 != 0 {
			return nil, fmt.Errorf("%s: qkv: got rows of %d channels, want a multiple of 3", of.Kind(), c)
		}
		c /= 3
		if op.SharedHeads() != op.Heads {
			return nil, fmt.Errorf("%s: heads of k and v: got %d for a packed operand, want those of q, %d", of.Kind(),
				op.KVHeads, op.Heads)
		}
	}
	if c%op.Heads != 0 {
		return nil, fmt.Errorf("%s: heads: got %d, want a divisor of the %d channels", of.Kind(), op.Heads, c)
	}
	if !op.Packed {
		kv := Spec(src.DType, n, t, c/op.Heads*op.SharedHeads())
		if err := firstError(sameAs(of, "k", in[1], kv), sameAs(of, "v", in[2], kv)); err != nil {
			return nil, err
		}
	}
	if t > MaxAttention {
		return nil, fmt.Errorf("%s: got %d positions, want at most %d", of.Kind(), t, MaxAttention)
	}
	rest := in[op.Sources():]
	if op.Lengths {
		if err := firstError(wantShape(of, "lengths", rest[0], n),
			wantType(of, "lengths", rest[0], tensor.I32)); err != nil {
			return nil, err
		}
		rest = rest[1:]
	}
	if op.P > 0 {
		err := firstError(wantShape(of, "ids", rest[0], n), wantType(of, "ids", rest[0], tensor.I64),
			wantShape(of, "key", rest[1], 2), wantType(of, "key", rest[1], tensor.U32))
		if err != nil {
			return nil, err
		}
	}
	return tensor.Shape{n, t, c}, nil
}

// wantGroups checks the number of query heads and the number of key/value heads. If kvHeads is 0, there are as many as
// query heads.
func wantGroups(of Op, heads, kvHeads int) error {
	if heads < 1 {
		return fmt.Errorf("%s: heads: got %d, want at least 1", of.Kind(), heads)
	}
	if kvHeads < 0 || kvHeads > 0 && heads%kvHeads != 0 {
		return fmt.Errorf("%s: heads of k and v: got %d, want a divisor of the %d heads of q", of.Kind(), kvHeads,
			heads)
	}
	return nil
}

// Parameters implements Parametric.
func (op Attention) Parameters() any {
	op.KVHeads = op.SharedHeads()
	return op
}

// Infer implements Op.
func (op Attention) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, op.inputs()); err != nil {
		return nil, err
	}
	s, err := op.check(op, in)
	if err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(in[0].DType, s...), Spec(weightType(in[0].DType), s[0], op.Heads, s[1])}, nil
}

// Infer implements Op.
func (op AttentionDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 3+op.inputs()); err != nil {
		return nil, err
	}
	s, err := op.check(op, in[3:])
	if err != nil {
		return nil, err
	}
	src := in[3]
	err = firstError(wantShape(op, "diff_dst", in[0], s...), wantType(op, "diff_dst", in[0], src.DType),
		wantShape(op, "dst", in[1], s...), wantType(op, "dst", in[1], src.DType),
		wantShape(op, "lse", in[2], s[0], op.Heads, s[1]), wantType(op, "lse", in[2], weightType(src.DType)))
	var out []TensorSpec
	for _, source := range in[3 : 3+op.Sources()] {
		out = append(out, Spec(source.DType, source.Shape...))
	}
	return out, err
}

// pairs returns the number of (query, key) pairs of all samples and heads, times D. A causal op has about half the
// pairs.
func (op Attention) pairs(dst tensor.Shape) int64 {
	n, t, c := int64(dst[0]), int64(dst[1]), int64(dst[2])
	if op.Causal {
		return n * c * (t * (t + 1) / 2)
	}
	return n * c * t * t
}

// FLOPs implements Coster. It counts two products over all pairs: the scores and dst.
func (op Attention) FLOPs(_, out []TensorSpec) int64 { return 4 * op.pairs(out[0].Shape) }

// FLOPs implements Coster. It counts four products, without the scores that a device computes again.
func (op AttentionDiff) FLOPs(in, _ []TensorSpec) int64 { return 8 * op.pairs(in[0].Shape) }
