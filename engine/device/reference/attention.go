package reference

import (
	"encoding/binary"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
)

func init() {
	add(attention[float32], attention[float64])
	add(attentionDiff[float32], attentionDiff[float64])
	add(attentionStep[float32], attentionStep[float64])
}

// attentionInputs holds the operands of Attention, one value per element.
type attentionInputs[T real] struct {
	op         device.Attention
	q, k, v    []T // row r of q starts at element r·stride, those of k and v at r·shared
	stride     int
	shared     int
	group      int // number of query heads per key/value head
	n, t, c, d int // samples, positions, channels, channels of a head
	lengths    []int32
	ids        []int64
	key        [2]uint32
	scale      T
	threshold  uint64
	factor     T
}

func loadAttention[T real](op device.Attention, in []operand) *attentionInputs[T] {
	s := in[0].shape()
	a := &attentionInputs[T]{op: op, n: s[0], t: s[1], c: s[2], stride: s[2], shared: s[2],
		group: op.Heads / op.SharedHeads()}
	if op.Packed {
		a.c = s[2] / 3
		all := load[T](in[0])
		a.q, a.k, a.v = all, all[a.c:], all[2*a.c:]
	} else {
		a.q, a.k, a.v = load[T](in[0]), load[T](in[1]), load[T](in[2])
		a.shared = in[1].shape()[2]
	}
	a.d = a.c / op.Heads
	a.scale = 1 / squareRoot(T(a.d))
	rest := in[op.Sources():]
	if op.Lengths {
		a.lengths, rest = loadI32(rest[0]), rest[1:]
	}
	if op.P > 0 {
		a.ids = loadI64(rest[0])
		a.key = [2]uint32{binary.NativeEndian.Uint32(rest[1].mem), binary.NativeEndian.Uint32(rest[1].mem[4:])}
		a.threshold = uint64(math.Round(op.P * (1 << 32)))
		a.factor = T(1 / (1 - op.P))
	}
	return a
}

// length returns the number of positions of sample n that are not padding.
func (a *attentionInputs[T]) length(n int) int {
	if a.lengths == nil {
		return a.t
	}
	return min(max(int(a.lengths[n]), 0), a.t)
}

// keys returns the number of keys that query i of sample n sees.
func (a *attentionInputs[T]) keys(n, i int) int {
	if a.op.Causal {
		return min(a.length(n), i+1)
	}
	return a.length(n)
}

// mask returns the factor of the probability of pair (i, j).
func (a *attentionInputs[T]) mask(n, h, i, j int) T {
	if a.op.P == 0 {
		return 1
	}
	id, position := uint64(a.ids[n]), uint32(i)<<16+uint32(j)
	words := philox([4]uint32{position / 4, a.op.Stream + uint32(h), uint32(id), uint32(id >> 32)}, a.key)
	if uint64(words[position%4]) >= a.threshold {
		return a.factor
	}
	return 0
}

// at returns the offset in q of head h, in row i of sample n.
func (a *attentionInputs[T]) at(n, h, i int) int { return (n*a.t+i)*a.stride + h*a.d }

// of returns the offset in k and v of the key/value head that query head h uses, in row i of sample n.
func (a *attentionInputs[T]) of(n, h, i int) int { return (n*a.t+i)*a.shared + h/a.group*a.d }

// query returns row i of q.
func (a *attentionInputs[T]) query(n, h, i int) []T { return a.q[a.at(n, h, i):][:a.d] }

// scores returns s[i, j] of each key j that query i sees.
func (a *attentionInputs[T]) scores(n, h, i int) []T {
	scores := make([]T, a.keys(n, i))
	dots(scores, a.query(n, h, i), a.k[a.of(n, h, 0):], a.shared)
	for j := range scores {
		scores[j] = T(scores[j] * a.scale)
	}
	return scores
}

// each calls f for each query that is not padding.
func (a *attentionInputs[T]) each(f func(n, h, i int)) {
	for n := range a.n {
		for h := range a.op.Heads {
			for i := range a.length(n) {
				f(n, h, i)
			}
		}
	}
}

func attention[T real](op device.Attention, in, out []operand) {
	a := loadAttention[T](op, in)
	dst, lse := make([]T, a.n*a.t*a.c), make([]T, a.n*op.Heads*a.t)
	a.each(func(n, h, i int) {
		scores := a.scores(n, h, i)
		l := logSumExp(scores)
		lse[(n*op.Heads+h)*a.t+i] = l
		row := dst[(n*a.t+i)*a.c+h*a.d:][:a.d]
		for j, s := range scores {
			addProduct(row, a.mask(n, h, i, j)*exp(s-l), a.v[a.of(n, h, j):])
		}
	})
	store(out[0], dst)
	store(out[1], lse)
}

// attentionDiff uses dp[i, j] = m[i, j]·(diff_dst[i]·v[j]). The gradient of s[i, j] is p[i, j]·(dp[i, j] -
// diff_dst[i]·dst[i]).
func attentionDiff[T real](op device.AttentionDiff, in, out []operand) {
	diff, dst, lse := load[T](in[0]), load[T](in[1]), load[T](in[2])
	a := loadAttention[T](op.Attention, in[3:])
	all := make([]T, a.n*a.t*a.stride)
	dq, dk, dv := all, all, all
	if op.Packed { // the three parts of the packed gradient
		dk, dv = all[a.c:], all[2*a.c:]
	} else {
		dk, dv = make([]T, a.n*a.t*a.shared), make([]T, a.n*a.t*a.shared)
	}
	a.each(func(n, h, i int) {
		at := (n*a.t+i)*a.c + h*a.d
		row, q, l := diff[at:][:a.d], a.at(n, h, i), lse[(n*op.Heads+h)*a.t+i]
		inner := dot(row, dst[at:])
		scores := a.scores(n, h, i)
		dp := make([]T, len(scores)) // diff_dst[i]·v[j]
		dots(dp, row, a.v[a.of(n, h, 0):], a.shared)
		for j, s := range scores {
			k := a.of(n, h, j)
			p, m := exp(s-l), a.mask(n, h, i, j)
			ds := p * (T(m*dp[j]) - inner) * a.scale
			addProduct(dv[k:][:a.d], T(m*p), row)
			addProduct(dq[q:][:a.d], ds, a.k[k:])
			addProduct(dk[k:][:a.d], ds, a.query(n, h, i))
		}
	})
	for i, part := range [][]T{dq, dk, dv}[:op.Sources()] {
		store(out[i], part)
	}
}

func attentionStep[T real](op device.AttentionStep, in, out []operand) {
	q, lengths := load[T](in[0]), loadI32(in[5])
	own, past := [2][]T{load[T](in[1]), load[T](in[2])}, [2][]T{load[T](in[3]), load[T](in[4])}
	n, t, c, row := in[0].shape()[0], in[3].shape()[1], in[0].shape()[2], in[3].shape()[2]
	d, group := c/op.Heads, op.Heads/op.SharedHeads()
	scale := 1 / squareRoot(T(d))
	dst := make([]T, n*c)
	for s := range n {
		var rows [2][][]T // keys and values that the query sees
		for i := range rows {
			for j := range min(max(int(lengths[s]), 0), t) {
				rows[i] = append(rows[i], past[i][(s*t+j)*row:][:row])
			}
			rows[i] = append(rows[i], own[i][s*row:][:row])
		}
		for h := range op.Heads {
			scores, at := make([]T, len(rows[0])), h/group*d
			for j, k := range rows[0] {
				scores[j] = dot(q[s*c+h*d:][:d], k[at:]) * scale
			}
			l := logSumExp(scores)
			for j, v := range rows[1] {
				addProduct(dst[s*c+h*d:][:d], exp(scores[j]-l), v[at:])
			}
		}
	}
	store(out[0], dst)
}
