package plan

import (
	"fmt"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// tokens declares an input of token ids below 4, for 2 samples of 3 positions.
func (l *leaves) tokens() *graph.Value { return l.Input("tokens", tensor.I32, 2, 3) }

// attention appends an attention layer. It adds the operands that op needs in addition to q, k and v.
func (l *leaves) attention(op graph.AttentionOp, n, t, c int) *graph.Value {
	l.samples = n
	var lengths, ids, key *graph.Value
	if op.Lengths {
		lengths = l.Input("lengths", tensor.I32, n)
	}
	if op.P > 0 {
		ids, key = l.Input("ids", tensor.I64, n), l.Input("key", tensor.U32, 2)
	}
	qkv := []*graph.Value{l.param(n, t, 3*c)}
	if !op.Packed {
		shared := c / op.Heads * op.SharedHeads()
		qkv = []*graph.Value{l.param(n, t, c), l.param(n, t, shared), l.param(n, t, shared)}
	}
	return l.Attention("y", op, qkv, lengths, ids, key)
}

func transformerRules() []ruleCase {
	cases := []ruleCase{
		{"embedding of tokens", func(l *leaves) *graph.Value {
			return l.Embedding("y", l.tokens(), graph.Tables{Weight: l.param(5, 4)}, tensor.F64)
		}},
		{"embedding of tokens, positions and segments", func(l *leaves) *graph.Value {
			t := graph.Tables{Weight: l.param(5, 4), Positions: l.param(4, 4),
				Segments: l.Input("segments", tensor.I32, 2, 3), Kinds: l.param(2, 4)}
			return l.Embedding("y", l.tokens(), t, tensor.F64)
		}},
		{"embedding with one table for tokens and segments", func(l *leaves) *graph.Value {
			w := l.param(5, 4)
			t := graph.Tables{Weight: w, Positions: l.param(3, 4), Segments: l.Input("segments", tensor.I32, 2, 3),
				Kinds: w}
			return l.Embedding("y", l.tokens(), t, tensor.F64)
		}},
		{"layer norm", func(l *leaves) *graph.Value {
			y, _ := l.LayerNorm("y", l.param(2, 3, 5), nil, l.positive(5), l.param(5), 1e-3)
			return y
		}},
		{"linear cross entropy", func(l *leaves) *graph.Value {
			l.loss = true
			loss, _ := l.LinearCrossEntropy("y", l.param(6, 4), l.param(5, 4), l.Input("row labels", tensor.I32, 6),
				l.param(5))
			return loss
		}},
		{"tied embeddings", func(l *leaves) *graph.Value {
			l.loss = true
			w := l.param(5, 4)
			x := l.Embedding("x", l.tokens(), graph.Tables{Weight: w, Positions: l.param(3, 4)}, tensor.F64)
			loss, _ := l.LinearCrossEntropy("y", l.Reshape("rows", l.Unary("t", device.Tanh, x), 6, 4), w,
				l.Input("row labels", tensor.I32, 6), nil)
			return loss
		}},
		{"an embedding that is also an operand", func(l *leaves) *graph.Value {
			// The gradient of sum also contributes to the gradient of w. No op may therefore overwrite the gradient of
			// sum.
			w := l.param(5, 4)
			x := l.Embedding("x", l.tokens(), graph.Tables{Weight: w}, tensor.F64)
			sum := l.Binary("sum", graph.Add, w, l.param(5, 4))
			return l.Concat("y", 0, l.Reshape("rows", x, 6, 4), sum)
		}},
	}
	for readers := range 3 { // number of readers of the sum
		for _, y := range []bool{true, false} {
			if readers == 0 && !y {
				continue
			}
			cases = append(cases, ruleCase{fmt.Sprintf("layer norm of a sum with %d readers, result read %t", readers,
				y), func(l *leaves) *graph.Value {
				x := l.Unary("x", device.Tanh, l.param(2, 3, 5))
				norm, sum := l.LayerNorm("y", x, l.param(2, 3, 5), l.positive(5), l.param(5), 1e-3)
				var parts []*graph.Value
				if y {
					parts = append(parts, norm)
				}
				for i := range readers {
					parts = append(parts, l.Binary(fmt.Sprint("part", i), graph.Mul, sum, l.param(5)))
				}
				return l.Concat("c", 1, parts...)
			}})
		}
	}
	for _, f := range []device.UnaryFunc{device.GELU, device.GELUTanh} {
		cases = append(cases, ruleCase{fmt.Sprint("bias and ", f), func(l *leaves) *graph.Value {
			return l.BiasGELU("y", f, l.param(2, 3, 5), l.param(5))
		}})
	}
	for _, op := range []graph.AttentionOp{
		{Heads: 2, Packed: true, Causal: true}, {Heads: 1}, {Heads: 3, Lengths: true},
		{Heads: 2, Packed: true, Causal: true, Lengths: true},
		{Heads: 2, Packed: true, Causal: true, P: 0.3, Stream: 5}, {Heads: 2, Lengths: true, P: 0.3},
		{Heads: 6, KVHeads: 2, Causal: true}, {Heads: 3, KVHeads: 1, Lengths: true, P: 0.3},
		{Heads: 2, KVHeads: 1, Causal: true, Lengths: true},
	} {
		cases = append(cases, ruleCase{fmt.Sprintf("attention %+v", op), func(l *leaves) *graph.Value {
			return l.attention(op, 3, 4, 6)
		}})
	}
	return append(cases, ruleCase{"attention of one position", func(l *leaves) *graph.Value {
		return l.attention(graph.AttentionOp{Heads: 2, Packed: true, Causal: true}, 2, 1, 4)
	}})
}

// Tied embeddings must need only one gradient buffer. The gradient of the embedding is added to that of the classifier
// in place.
func TestTiedEmbeddingsAccumulate(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		w := g.Param("w", graph.Normal(1), 50, 4)
		x := g.Embedding("x", g.Input("tokens", tensor.I32, 2, 3), graph.Tables{Weight: w}, tensor.F32)
		loss, _ := g.LinearCrossEntropy("y", g.Reshape("rows", x, 6, 4), w, g.Input("labels", tensor.I32, 6), nil)
		g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		g.Output("loss", loss)
	})
	if err != nil {
		t.Fatal(err)
	}
	op, ok := g.Gradients[0].Value.Node.Op.(device.EmbeddingDiff)
	if len(g.Gradients) != 1 || !ok || !op.Accumulate {
		t.Errorf("got gradients %v by %+v, want one that accumulates", g.Gradients, g.Gradients[0].Value.Node.Op)
	}
	for _, n := range g.Nodes {
		if n.Op.Kind() == "binary" {
			t.Errorf("%s adds gradients in a pass of its own", n.Name)
		}
	}
}

// block appends a small transformer with every fused op. The loss is the sum over rows.
func block(g *graph.Graph, compute tensor.DType) {
	const n, t, c, v = 2, 5, 8, 11
	param := func(name string, shape ...int) *graph.Value { return g.Param(name, graph.Uniform(1), shape...) }
	tables := graph.Tables{Weight: param("wte", v, c), Positions: param("wpe", 7, c),
		Segments: g.Input("segments", tensor.I32, n, t), Kinds: param("kinds", 3, c)}
	x := g.Embedding("embedding", g.Input("tokens", tensor.I32, n, t), tables, compute)
	h, _ := g.LayerNorm("ln1", x, nil, param("g1", c), param("b1", c), 1e-5)
	rows := func(v *graph.Value) *graph.Value { return g.Reshape("rows", v, n*t, v.Shape[len(v.Shape)-1]) }
	qkv := g.Reshape("qkv", g.Linear("attn", rows(h), param("wqkv", 3*c, c), param("bqkv", 3*c), tensor.Invalid), n, t,
		3*c)
	a := g.Attention("attention", graph.AttentionOp{Heads: 2, Packed: true, Causal: true}, []*graph.Value{qkv}, nil,
		nil, nil)
	h, x = g.LayerNorm("ln2", a, x, param("g2", c), param("b2", c), 1e-5)
	f := g.BiasGELU("gelu", device.GELUTanh, g.Linear("fc", rows(h), param("wfc", 16, c), nil, tensor.Invalid),
		param("bfc", 16))
	f = g.Linear("proj", f, param("wproj", c, 16), param("bproj", c), tensor.Invalid)
	h, _ = g.LayerNorm("ln3", g.Reshape("f", f, n, t, c), x, param("g3", c), param("b3", c), 1e-5)
	loss, rank := g.LinearCrossEntropy("head", rows(h), g.Params[0], g.Input("labels", tensor.I32, n*t),
		param("bias", v))
	g.Output("loss", loss)
	g.Output("rank", rank)
	g.Differentiate(loss, g.Input("scale", g.ParamType(), 1))
}

// Decompositions compute the same functions, but their f64 operations have another order. The tolerance of 1e-12 covers
// the rounding of a few hundred operations.
func TestDecompositionsOfTransformersEqualTheirOps(t *testing.T) {
	run := func(refuse func(device.Op) bool) map[string][]float64 {
		g, err := graph.Build(func(g *graph.Graph) {
			g.UseF64()
			block(g, tensor.F64)
		})
		if err != nil {
			t.Fatal(err)
		}
		dev := newParticular()
		dev.refuse = func(op device.Op, in, _ []device.TensorSpec) bool {
			return refuse(op) && !(op.Kind() == "embedding" && len(in) == 2)
		}
		r := newRig(t, dev, g)
		defer r.close()
		r.input("tokens", []float64{1, 4, 1, 0, 10, 3, 3, 2, 5, 9})
		r.input("segments", []float64{0, 0, 1, 1, 2, 2, 2, 0, 1, 0})
		r.input("labels", []float64{4, -1, 0, 10, 9, 3, -7, 2, 5, 9})
		r.input("scale", []float64{0.125})
		r.run(true)
		values := map[string][]float64{"loss": r.output("loss"), "rank": r.output("rank")}
		for _, p := range r.state.Params.Params {
			values[p.Name] = r.gradient(p.Name)
		}
		return values
	}
	want := run(func(device.Op) bool { return false })
	const both = "linear_cross_entropy_both" // computes two of the other ops, which run only if it is refused
	kinds := []string{"embedding", "layer_norm", "layer_norm_diff", "bias_gelu", "bias_gelu_diff",
		"linear_cross_entropy", "linear_cross_entropy_diff", both}
	for i := range len(kinds) + 1 {
		name, refused := "all", func(op device.Op) bool { return true }
		if i < len(kinds) {
			name, refused = kinds[i], func(op device.Op) bool { return op.Kind() == kinds[i] || op.Kind() == both }
		}
		t.Run(name, func(t *testing.T) {
			hit := map[string]bool{}
			got := run(func(op device.Op) bool {
				for _, k := range kinds {
					if op.Kind() == k && refused(op) {
						hit[k] = true
						return true
					}
				}
				return false
			})
			if len(hit) == 0 {
				t.Fatal("the graph has no such op")
			}
			for what, w := range want {
				if d := distance(got[what], w); !(d <= 1e-12) {
					t.Errorf("%s: differs by %g of its norm, want at most 1e-12", what, d)
				}
			}
		})
	}
}

// composedAttention computes Attention with simple ops, for one sample and one head at a time. visible (N, H, T, T) is
// 0 where a query attends to a key, otherwise a large negative number. valid (N, T, 1) is 1 for positions below the
// length, otherwise 0.
func composedAttention(g *graph.Graph, op graph.AttentionOp, qkv, visible, valid *graph.Value) *graph.Value {
	n, t, c := qkv.Shape[0], qkv.Shape[1], qkv.Shape[2]/3
	d := c / op.Heads
	scale := g.Full("scale of scores", tensor.F64, 1/math.Sqrt(float64(d)), 1)
	var samples []*graph.Value
	for i := range n {
		var heads []*graph.Value
		for h := range op.Heads {
			name := fmt.Sprintf("%d.%d ", i, h)
			part := func(which int) *graph.Value { // (T, D)
				x := g.Slice(name, g.Slice(name, qkv, 0, i, 1), 2, which*c+h*d, d)
				return g.Reshape(name, x, t, d)
			}
			s := g.Binary(name, device.Mul, g.Linear(name, part(0), part(1), nil, tensor.Invalid), scale)
			mask := g.Reshape(name, g.Slice(name, g.Slice(name, visible, 0, i, 1), 1, h, 1), t, t)
			e := g.Unary(name, device.Exp, g.Binary(name, device.Add, s, mask))
			sum := g.Reshape(name, g.Reduce(name, device.Sum, e, 1), t, 1)
			p := g.Binary(name, device.Div, e, sum)
			heads = append(heads, g.Linear(name, p, g.Transpose(name, part(2), 1, 0), nil, tensor.Invalid))
		}
		samples = append(samples, g.Reshape("heads", g.Concat("heads", 1, heads...), 1, t, c))
	}
	return g.Binary("y", device.Mul, g.Concat("samples", 0, samples...), valid)
}

// The composition adds in another order than the op. The tolerance of 1e-12 covers the rounding of a few hundred f64
// additions for each gradient.
func TestAttentionEqualsItsDecomposition(t *testing.T) {
	for _, s := range []struct {
		t       int
		causal  bool
		lengths []float64
	}{{1, true, nil}, {1, false, []float64{1, 1}}, {3, true, nil}, {7, false, nil}, {7, false, []float64{4, 7}},
		{13, true, []float64{13, 1}}, {33, true, nil}} {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			const n, heads, c = 2, 2, 6
			op := graph.AttentionOp{Heads: heads, Packed: true, Causal: s.causal, Lengths: s.lengths != nil}
			length := func(i int) int {
				if s.lengths == nil {
					return s.t
				}
				return int(s.lengths[i])
			}
			var visible, valid []float64
			for i := range n {
				for range heads {
					for q := range s.t {
						for k := range s.t {
							v := 0.0
							if k >= length(i) || s.causal && k > q {
								v = -1e9
							}
							visible = append(visible, v)
						}
					}
				}
				for q := range s.t {
					valid = append(valid, map[bool]float64{true: 1, false: 0}[q < length(i)])
				}
			}
			results := make([][2][]float64, 2)
			for i := range results {
				g, err := graph.Build(func(g *graph.Graph) {
					g.UseF64()
					l := &leaves{Graph: g}
					qkv := l.param(n, s.t, 3*c)
					var y *graph.Value
					if i == 0 {
						var lengths *graph.Value
						if op.Lengths {
							lengths = g.Input("lengths", tensor.I32, n)
						}
						y = g.Attention("y", op, []*graph.Value{qkv}, lengths, nil, nil)
					} else {
						y = composedAttention(g, op, qkv, g.Input("visible", tensor.F64, n, heads, s.t, s.t),
							g.Input("valid", tensor.F64, n, s.t, 1))
					}
					g.Output("y", y)
					differentiate(g, y)
				})
				if err != nil {
					t.Fatal(err)
				}
				r := newRig(t, reference.New(), g)
				r.optional("lengths", s.lengths)
				r.optional("visible", visible)
				r.optional("valid", valid)
				r.input("labels", []float64{1})
				r.input("scale", []float64{1})
				r.run(true)
				results[i] = [2][]float64{r.output("y"), r.gradient("p0")}
				r.close()
			}
			for i, what := range []string{"result", "gradient"} {
				if d := distance(results[0][i], results[1][i]); !(d <= 1e-12) {
					t.Errorf("%s: differs by %g of its norm, want at most 1e-12", what, d)
				}
			}
		})
	}
}
