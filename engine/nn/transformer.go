package nn

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Layers of transformers. Legend: N samples, T positions, C channels, R = N·T rows.

// Rows returns x (…, C) reshaped to (R, C).
func (n *Net) Rows(x *graph.Value) *graph.Value {
	c := x.Shape[len(x.Shape)-1]
	return n.Graph.Reshape("rows", x, int(x.Shape.Elements())/c, c)
}

// Table declares an embedding table (rows, C) with normally distributed initial values.
func (n *Net) Table(name string, rows, channels int, std float64) *graph.Value {
	return n.Graph.Param(name+".weight", graph.Normal(std), rows, channels)
}

// Constant declares a table with the given values in row-major order, such as the cosines of a rotary embedding. It has
// the compute type. Training never changes the constant: it has no gradient, no moments and no weight decay. All ranks
// use the values of rank 0. Checkpoints contain the constant under its name, and a resumed run or a loaded model uses
// the values of the checkpoint. The shape must not depend on the number of samples or positions of a pass. Declare the
// table for the longest text, and use Graph.Slice.
func (n *Net) Constant(name string, values []float64, shape ...int) *graph.Value {
	v := n.Graph.FrozenState(name, graph.Values(slices.Clone(values)), shape...)
	if v.DType == n.Compute {
		return v
	}
	return n.Graph.Cast(name, v, n.Compute)
}

// Projection maps the last dimension of x (…, I) to out channels. Initial weights are normal with standard deviation
// std, initial biases are 0.
func (n *Net) Projection(name string, x *graph.Value, out int, std float64) *graph.Value {
	w, b := n.weights(name, x, out, std)
	y := n.Graph.Linear(name, n.Rows(x), w, b, tensor.Invalid)
	return n.Graph.Reshape(name, y, append(x.Shape[:len(x.Shape)-1].Clone(), out)...)
}

// ProjectionFunc is a Projection followed by f. For graph.GELU and graph.GELUTanh, one op adds the bias and applies f.
func (n *Net) ProjectionFunc(name string, x *graph.Value, out int, std float64, f graph.UnaryFunc) *graph.Value {
	if f != graph.GELU && f != graph.GELUTanh {
		return n.Graph.Unary(name+" "+f.String(), f, n.Projection(name, x, out, std))
	}
	w, b := n.weights(name, x, out, std)
	y := n.Graph.BiasGELU(name+" gelu", f, n.Graph.Linear(name, n.Rows(x), w, nil, tensor.Invalid), b)
	return n.Graph.Reshape(name, y, append(x.Shape[:len(x.Shape)-1].Clone(), out)...)
}

func (n *Net) weights(name string, x *graph.Value, out int, std float64) (w, b *graph.Value) {
	if len(x.Shape) < 2 {
		panic(&graph.BuildError{
			Node: name, Err: fmt.Errorf("x: got %d dimensions %v, want at least 2", len(x.Shape), x.Shape)})
	}
	w = n.Graph.Param(name+".weight", graph.Normal(std), out, x.Shape[len(x.Shape)-1])
	return w, n.Graph.Param(name+".bias", graph.Const(0), out)
}

// LayerNorm normalises the rows of x (…, C). If residual is not nil, it normalises x + residual. The result sum is the
// value that was normalised.
func (n *Net) LayerNorm(name string, x, residual *graph.Value, eps float64) (y, sum *graph.Value) {
	c := x.Shape[len(x.Shape)-1]
	gamma, beta := n.Graph.Param(name+".weight", graph.Const(1), c), n.Graph.Param(name+".bias", graph.Const(0), c)
	return n.Graph.LayerNorm(name, x, residual, gamma, beta, eps)
}

// Attention describes an attention layer.
type Attention struct {
	Heads   int
	KVHeads int // key/value heads, a divisor of Heads, if q, k and v are separate values; 0: as many as Heads
	Causal  bool
	Lengths *graph.Value // (N) i32: number of positions of each sample without padding; nil: all positions
	Dropout float64      // dropout probability of the attention probabilities in training
}

// Cache is the key-value cache of a causal model. It contains, for each attention layer, k and v of the positions that
// the model has read. The host copies each output CacheRows to the input CachePast of the next pass.
type Cache struct {
	Positions int // capacity
	// (N) i32: positions in the cache; nil: the pass reads a text from its start, without a cache
	Lengths *graph.Value
	Values  int // number of cached values, two for each attention layer; Attention sets it
}

// CachePast is the name of the input (N, Positions, E) with the rows of a cached value at earlier positions.
func CachePast(value int) string { return fmt.Sprintf("cache.%d.past", value) }

// CacheRows is the name of the output (N, T, E) with the rows of a cached value that the pass computes.
func CacheRows(value int) string { return fmt.Sprintf("cache.%d.rows", value) }

// attend implements Attention with a cache.
func (n *Net) attend(name string, op graph.AttentionOp, qkv []*graph.Value) *graph.Value {
	if !op.Causal || op.Lengths {
		panic(&graph.BuildError{Node: name,
			Err: fmt.Errorf("cache: got an attention layer of another kind, want a causal one without lengths")})
	}
	parts := [3]*graph.Value{}
	for i := range parts {
		if op.Packed {
			c := qkv[0].Shape[2] / 3
			parts[i] = n.Graph.Slice(fmt.Sprintf("%s.%c", name, "qkv"[i]), qkv[0], 2, i*c, c)
		} else {
			parts[i] = qkv[i]
		}
	}
	var past [2]*graph.Value
	for i, rows := range parts[1:] {
		n.Graph.Output(CacheRows(n.Cache.Values), rows)
		if n.Cache.Lengths != nil {
			past[i] = n.Graph.Input(CachePast(n.Cache.Values), rows.DType, rows.Shape[0], n.Cache.Positions,
				rows.Shape[2])
		}
		n.Cache.Values++
	}
	if n.Cache.Lengths == nil {
		return n.Graph.Attention(name, op, qkv, nil, nil, nil)
	}
	return n.Graph.AttentionStep(name, graph.AttentionStepOp{Heads: op.Heads, KVHeads: op.KVHeads}, parts, past,
		n.Cache.Lengths)
}

// Attention returns (N, T, C). The parameter qkv is one value (N, T, 3C), or three: q (N, T, C), and k and v (N, T,
// C·KVHeads/Heads).
func (n *Net) Attention(name string, a Attention, qkv ...*graph.Value) *graph.Value {
	if len(qkv) != 1 && len(qkv) != 3 {
		panic(&graph.BuildError{Node: name,
			Err: fmt.Errorf("attention: got %d values, want q, k and v in one value or in three", len(qkv))})
	}
	op := graph.AttentionOp{Heads: a.Heads, KVHeads: a.KVHeads, Packed: len(qkv) == 1, Causal: a.Causal,
		Lengths: a.Lengths != nil}
	if n.Cache != nil {
		return n.attend(name, op, qkv)
	}
	if n.Training && a.Dropout > 0 {
		op.P, op.Stream = a.Dropout, n.dropouts+1
		n.dropouts += uint32(a.Heads) // one stream per head
	}
	return n.Graph.Attention(name, op, qkv, a.Lengths, n.IDs, n.Key)
}

// NormalLogits is the same as Logits, but with normally distributed initial weights and biases of 0.
func (n *Net) NormalLogits(name string, x *graph.Value, classes int, std float64) *graph.Value {
	w, b := n.weights(name, x, classes, std)
	n.Head = name
	return n.Graph.Linear(name, x, w, b, n.lossType())
}
