package graph

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	differentiable(device.Embedding{}, embeddingGradient)
	differentiable(device.LayerNorm{}, layerNormGradient)
	differentiable(device.BiasGELU{}, biasGELUGradient)
	differentiable(device.Attention{}, attentionGradient)
	differentiable(device.LinearCrossEntropy{}, linearLossGradient)
}

// Ops for transformers, with their gradients. Legend: N samples, T positions, C channels, V classes of a vocabulary.

// Functions and types for layers.
const (
	GELUTanh = device.GELUTanh
	Tanh     = device.Tanh
)

// UnaryFunc names an element-wise function.
type UnaryFunc = device.UnaryFunc

// Settings of an attention layer, and of an attention layer with a cache.
type (
	AttentionOp     = device.Attention
	AttentionStepOp = device.AttentionStep
)

// Tables holds the tables of an embedding, with V token ids, P positions and S kinds of segments. Positions may be nil.
// Segments and Kinds are both set or both nil.
type Tables struct {
	Weight    *Value // (V, C)
	Positions *Value // (P, C)
	Segments  *Value // for each token, its row in Kinds
	Kinds     *Value // (S, C)
}

// Embedding returns (N, T, C). Each token's row is the sum of the table rows for its id, its position and its segment.
// The ids are tokens (N, T), of type i32. The result has type to.
func (g *Graph) Embedding(name string, tokens *Value, t Tables, to tensor.DType) *Value {
	in := []*Value{tokens, t.Weight}
	if t.Positions != nil {
		in = append(in, t.Positions)
	}
	if t.Kinds != nil {
		if t.Positions == nil {
			fail(name, "got a table of segments without one of positions")
		}
		in = append(in, t.Segments, t.Kinds)
	}
	return g.one(name, device.Embedding{To: to}, in...)
}

// Zeros returns an i32 value with only zeros, for example for ids.
func (g *Graph) Zeros(name string, shape ...int) *Value { return g.Full(name, tensor.I32, 0, shape...) }

// LayerNorm normalises the rows of x (…, C). If residual is not nil, it normalises x + residual, and also returns this
// sum.
func (g *Graph) LayerNorm(name string, x, residual, gamma, beta *Value, eps float64) (y, sum *Value) {
	if residual == nil {
		return g.one(name, device.LayerNorm{Eps: eps}, x, gamma, beta), x
	}
	out := g.Apply(name, device.LayerNorm{Eps: eps, Add: true}, x, gamma, beta, residual)
	return out[0], out[3]
}

// BiasGELU adds bias (C) to the rows of x (…, C) and applies f, GELU or GELUTanh.
func (g *Graph) BiasGELU(name string, f device.UnaryFunc, x, bias *Value) *Value {
	return g.one(name, device.BiasGELU{Func: f}, x, bias)
}

// Attention returns dst (N, T, C). qkv is one value if op.Packed is set, otherwise three values. lengths is nil unless
// op.Lengths is set. If op.P > 0, ids and key are those of Dropout.
func (g *Graph) Attention(name string, op AttentionOp, qkv []*Value, lengths, ids, key *Value) *Value {
	in := append([]*Value{}, qkv...)
	if op.Lengths {
		in = append(in, lengths)
	}
	if op.P > 0 {
		in = append(in, ids, key)
	}
	return g.one(name, op, in...)
}

// AttentionStep returns the attention (N, 1, C) of the next position of each sample. qkv holds q (N, 1, C) and k and v
// (N, 1, E) of this position. past holds k and v (N, T, E) of the earlier positions. lengths (N) i32 is the number of
// valid positions of each sample. AttentionStep has no gradient.
func (g *Graph) AttentionStep(name string, op AttentionStepOp, qkv [3]*Value, past [2]*Value, lengths *Value) *Value {
	return g.one(name, op, qkv[0], qkv[1], qkv[2], past[0], past[1], lengths)
}

// LinearCrossEntropy returns, for each row of x (R, C), the loss (R) and the top-k position (R) of its label. The
// logits are x·wᵀ (V, C) + bias (V), and the labels (R) are i32. bias may be nil. Rows with a label < 0 are ignored.
func (g *Graph) LinearCrossEntropy(name string, x, w, labels, bias *Value) (loss, position *Value) {
	return g.SparseLinearCrossEntropy(name, 0, x, w, labels, bias)
}

// SparseLinearCrossEntropy is LinearCrossEntropy for rows of which only a fraction has a label. FLOPs counts only this
// fraction. The fraction is an expectation and does not change the result.
func (g *Graph) SparseLinearCrossEntropy(name string, fraction float64, x, w, labels, bias *Value) (loss,
	position *Value) {
	in := []*Value{x, g.as(w, x.DType), labels}
	if bias != nil {
		in = append(in, bias)
	}
	out := g.Apply(name, device.LinearCrossEntropy{Counted: device.Counted{Fraction: fraction}}, in...)
	return out[0], out[1]
}

func embeddingGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	diff, out := g.sum(n.Name, n.Out[0], d[0]), make([]*Value, len(n.In))
	table := func(i int, ids ...*Value) {
		if i < len(n.In) && need(i) {
			op := device.EmbeddingDiff{Rows: n.In[i].Shape[0], Positions: len(ids) == 0}
			out[i] = g.one(n.Name+" diff table", op, append([]*Value{diff}, ids...)...)
		}
	}
	if len(n.In) > 3 {
		table(4, n.In[3])
	}
	table(2)
	table(1, n.In[0])
	return out
}

func layerNormGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	op, x := n.Op.(device.LayerNorm), n.In[0]
	var plus *Value // contribution of the other readers of the sum to its gradient
	if op.Add {
		x, plus = n.Out[3], g.sum(n.Name+" residual", n.Out[3], d[3])
	}
	out := make([]*Value, len(n.In))
	if len(d[0]) == 0 { // no node reads the normalised output
		out[0] = plus
	} else {
		in := []*Value{g.sum(n.Name, n.Out[0], d[0]), x, n.Out[1], n.Out[2], n.In[1]}
		if plus != nil {
			in = append(in, plus)
		}
		copy(out, g.Apply(n.Name+" diff", device.LayerNormDiff{Plus: plus != nil}, in...))
	}
	if op.Add {
		out[3] = out[0]
	}
	return out
}

func biasGELUGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op := device.BiasGELUDiff{Func: n.Op.(device.BiasGELU).Func}
	return g.Apply(n.Name+" diff", op, g.sum(n.Name, n.Out[0], d[0]), n.In[0], n.In[1])
}

func attentionGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	in := append([]*Value{g.sum(n.Name, n.Out[0], d[0]), n.Out[0], n.Out[1]}, n.In...)
	out := make([]*Value, len(n.In))
	copy(out, g.Apply(n.Name+" diff", device.AttentionDiff{Attention: n.Op.(device.Attention)}, in...))
	return out
}

func linearLossGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	in := append([]*Value{n.In[0], n.In[1], n.In[2], n.Out[2], g.lossScale(n, d)}, n.In[3:]...)
	grads := g.Apply(n.Name+" diff", device.LinearCrossEntropyDiff{Counted: n.Op.(device.LinearCrossEntropy).Counted},
		in...)
	out := make([]*Value, len(n.In))
	out[0], out[1] = grads[0], grads[1]
	if len(n.In) == 4 {
		out[3] = grads[2]
	}
	return out
}
