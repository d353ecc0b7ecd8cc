package devicetest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// scores is the tolerance of ops that exponentiate sums: the absolute error of a score becomes the relative error of
// its probability.
var scores = tolerance{
	floor: 8, reason: "two units in the last place of a score of up to 4, which are eight of its exponential"}

// probabilities is the tolerance of attention. Tensor units and bf16 instructions multiply 16-bit probabilities. The
// rounding errors of these probabilities are independent of the output's rounding error, so that both together are up
// to sqrt(2) times as large.
var probabilities = tolerance{floor: scores.floor, inner: 0.5,
	reason: scores.reason + "; probabilities are rounded to the type of the operands"}

func transformerCases() []valueCase {
	cases := append(embeddingCases(), layerNormCases()...)
	return append(append(append(cases, biasGELUCases()...), append(attentionCases(), attentionStepCases()...)...),
		linearLossCases()...)
}

func embeddingCases() []valueCase {
	var cases []valueCase
	for _, s := range []struct{ n, t, c, rows, positions, kinds int }{
		{1, 1, 1, 1, 1, 1}, {2, 5, 17, 7, 5, 2}, {3, 33, 48, 5, 40, 3}, {2, 7, 130, 1000, 9, 2},
	} {
		ids := fixedType(tensor.I32, Integers(0, s.rows-1), s.n, s.t)
		segments := fixedType(tensor.I32, Integers(0, s.kinds-1), s.n, s.t)
		weight, positions, kinds := params(symmetric, s.rows, s.c), params(symmetric, s.positions, s.c),
			params(symmetric, s.kinds, s.c)
		name := fmt.Sprintf(" n%d t%d c%d rows%d", s.n, s.t, s.c, s.rows)
		forward := func(r *Runner, in []Operand) []Operand { return r.Do(device.Embedding{To: r.Float}, in...) }
		diff, sum := floats(symmetric, s.n, s.t, s.c), params(symmetric, s.rows, s.c)
		cases = append(cases,
			valueCase{name: "embedding" + name, inputs: []input{ids, weight}, run: forward, tolerance: exact},
			valueCase{name: "embedding with positions" + name, inputs: []input{ids, weight, positions}, run: forward,
				tolerance: exact},
			valueCase{name: "embedding with segments" + name, inputs: []input{ids, weight, positions, segments, kinds},
				run: forward, tolerance: sums},
			valueCase{name: "embedding_diff" + name, inputs: []input{diff, ids},
				run: one(device.EmbeddingDiff{Rows: s.rows}), tolerance: sums},
			valueCase{name: "embedding_diff of positions" + name, inputs: []input{diff},
				run: one(device.EmbeddingDiff{Rows: s.positions, Positions: true}), tolerance: sums},
			valueCase{name: "embedding_diff into a gradient" + name, inputs: []input{diff, ids, sum},
				run: one(device.EmbeddingDiff{Rows: s.rows, Accumulate: true}), tolerance: sums},
			valueCase{name: "embedding_diff of positions into a gradient" + name,
				inputs:    []input{diff, params(symmetric, s.positions, s.c)},
				run:       one(device.EmbeddingDiff{Rows: s.positions, Positions: true, Accumulate: true}),
				tolerance: sums})
	}
	return cases
}

func layerNormCases() []valueCase {
	const eps = 1e-5
	var cases []valueCase
	for _, s := range []tensor.Shape{{1, 2}, {3, 5}, {7, 16}, {2, 9, 35}, {5, 768}, {2, 3, 1601}} {
		c, name := s[len(s)-1], fmt.Sprintf(" %v", s)
		x, residual, diff := floats(Uniform(-2, 3), s...), floats(symmetric, s...), floats(symmetric, s...)
		gamma, beta := params(Uniform(0.5, 1.5), c), params(symmetric, c)
		forward := device.LayerNorm{Eps: eps}
		cases = append(cases,
			valueCase{name: "layer_norm" + name, inputs: []input{x, gamma, beta}, run: one(forward),
				tolerance: statistics},
			valueCase{name: "layer_norm of a sum" + name, inputs: []input{x, gamma, beta, residual}, chain: true,
				run: one(device.LayerNorm{Eps: eps, Add: true}), tolerance: statistics})
		for _, plus := range []bool{false, true} {
			c := valueCase{name: fmt.Sprintf("layer_norm_diff plus %t%s", plus, name),
				inputs: []input{x, gamma, beta, diff}, tolerance: statistics,
				run: func(r *Runner, in []Operand) []Operand {
					saved := r.Do(forward, in[:3]...)
					return r.Do(device.LayerNormDiff{Plus: plus},
						append([]Operand{in[3], in[0], saved[1], saved[2], in[1]}, in[4:]...)...)
				}}
			if plus {
				c.inputs = append(c.inputs, residual)
			}
			cases = append(cases, c)
		}
	}
	return cases
}

func biasGELUCases() []valueCase {
	var cases []valueCase
	for _, s := range []tensor.Shape{{1, 1}, {7, 5}, {3, 16}, {2, 9, 35}, {33, 100}} {
		x, bias := floats(Uniform(-4, 4), s...), params(symmetric, s[len(s)-1])
		for _, f := range []device.UnaryFunc{device.GELU, device.GELUTanh} {
			cases = append(cases,
				valueCase{name: fmt.Sprintf("bias_gelu %v %v", f, s), inputs: []input{x, bias},
					run: one(device.BiasGELU{Func: f}), tolerance: functions,
					terms: func(in []Tensor, _ int) float64 { return norm(plusBias(in[0].Values, in[1].Values), nil) }},
				valueCase{name: fmt.Sprintf("bias_gelu_diff %v %v", f, s),
					inputs: []input{floats(symmetric, s...), x, bias},
					run:    one(device.BiasGELUDiff{Func: f}), tolerance: functions,
					terms: func(in []Tensor, _ int) float64 { return norm(in[0].Values, nil) }})
		}
	}
	return cases
}

// plusBias returns x + bias, broadcast along the last dimension.
func plusBias(x, bias []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v + bias[i%len(bias)]
	}
	return out
}

func attentionCases() []valueCase {
	var cases []valueCase
	type size struct {
		n, t, heads, d          int
		packed, causal, lengths bool
		p                       float64
	}
	add := func(s size, kv int) {
		name, shared := fmt.Sprintf(" %+v", s), s.heads
		if kv > 0 {
			name, shared = fmt.Sprintf(" of %d shared heads%s", kv, name), kv
		}
		op := device.Attention{Heads: s.heads, KVHeads: kv, Packed: s.packed, Causal: s.causal, Lengths: s.lengths,
			P: s.p, Stream: 7}
		c := s.heads * s.d
		var inputs []input
		if s.packed {
			inputs = append(inputs, floats(Uniform(-2, 2), s.n, s.t, 3*c))
		} else {
			for _, heads := range []int{s.heads, shared, shared} {
				inputs = append(inputs, floats(Uniform(-2, 2), s.n, s.t, heads*s.d))
			}
		}
		if s.lengths { // the first sample has the full length; another sample may have length 0
			inputs = append(inputs, fixedType(tensor.I32, func(seed, i uint64) float64 {
				return map[bool]float64{true: float64(s.t), false: Integers(0, s.t)(seed, i)}[i == 0]
			}, s.n))
		}
		if s.p > 0 {
			inputs = append(inputs, fixedType(tensor.I64, Uniform(0, 1<<40), s.n),
				fixedType(tensor.U32, Uniform(0, 1<<32), 2))
		}
		large := s.t > 128
		cases = append(cases,
			valueCase{name: "attention" + name, inputs: inputs, run: one(op), tolerance: probabilities, large: large},
			valueCase{name: "attention_diff" + name, inputs: append(inputs, floats(symmetric, s.n, s.t, c)),
				tolerance: scores, chain: true, large: large,
				terms: singleKeyTerms(op, s.t, s.d),
				run: func(r *Runner, in []Operand) []Operand {
					last := len(in) - 1
					saved := r.Do(op, in[:last]...)
					return r.Do(device.AttentionDiff{Attention: op},
						append([]Operand{in[last], saved[0], saved[1]}, in[:last]...)...)
				}})
	}
	for _, s := range []size{
		{1, 1, 1, 1, true, true, false, 0},
		{2, 1, 2, 8, false, false, true, 0},
		{2, 7, 2, 8, true, true, false, 0},
		{2, 7, 3, 5, false, false, false, 0},
		{3, 9, 2, 16, true, false, true, 0},
		{3, 17, 2, 12, false, true, true, 0.3},
		{1, 65, 2, 64, true, true, false, 0},
		{2, 70, 1, 64, true, true, false, 0.1},
		{2, 67, 2, 32, false, false, true, 0.1},
		{1, 133, 1, 80, true, true, false, 0},
		{2, 77, 1, 128, false, true, true, 0.1},
		{1, 261, 1, 64, true, true, false, 0.1},
		{2, 203, 1, 16, false, false, true, 0},
	} {
		add(s, 0)
	}
	for _, s := range []struct {
		size
		kv int
	}{
		{size{2, 7, 4, 8, false, true, false, 0}, 2},
		{size{2, 9, 6, 5, false, false, true, 0}, 3},
		{size{3, 17, 6, 12, false, true, true, 0.3}, 2},
		{size{2, 70, 4, 64, false, true, false, 0.1}, 1},
		{size{2, 33, 2, 128, false, false, true, 0.1}, 1},
		{size{1, 67, 3, 80, false, false, false, 0}, 1},
		{size{1, 33, 2, 16, false, true, false, 0}, 2},
		{size{1, 261, 4, 32, false, true, true, 0}, 2},
	} {
		add(s.size, s.kv)
	}
	return cases
}

// singleKeyTerms returns the terms of the gradients of q and k for samples of one token, without dropout; nil for other
// samples. A token that attends only to itself has probability 1, so the gradient of its score is diff·v - diff·dst =
// 0. The two dot products have equal terms, but a device may add them in different orders, in f32. The difference is
// then as large as a rounding error of the products. It is multiplied by k or q, and by the scale of the scores.
func singleKeyTerms(op device.Attention, t, d int) func(in []Tensor, i int) float64 {
	if t != 1 || op.P > 0 || op.Packed {
		return nil
	}
	return func(in []Tensor, i int) float64 {
		q, k, v, diff := in[0].Values, in[1].Values, in[2].Values, in[len(in)-1].Values
		if i == 2 {
			return 0 // the gradient of v is a plain product
		}
		other, sum := [][]float64{k, q}[i], 0.0
		for head := 0; head < len(v); head += d {
			products := 0.0
			for j := head; j < head+d; j++ {
				products += math.Abs(diff[j] * v[j])
			}
			sum += math.Pow(2*products*norm(other[head:head+d], nil), 2) / float64(d)
		}
		return math.Sqrt(sum)
	}
}

func attentionStepCases() []valueCase {
	var cases []valueCase
	for _, s := range []struct{ n, t, heads, kv, d int }{{1, 1, 1, 1, 1}, {2, 7, 3, 3, 5}, {3, 33, 2, 1, 16},
		{2, 300, 2, 2, 64}, {1, 130, 6, 2, 80}} {
		own, row := floats(Uniform(-2, 2), s.n, 1, s.kv*s.d), floats(Uniform(-2, 2), s.n, s.t, s.kv*s.d)
		for _, past := range []struct {
			name        string
			least, most int
		}{{"", 0, s.t}, {" without a past", 0, 0}, {" of a full cache", s.t, s.t}} {
			cases = append(cases, valueCase{name: fmt.Sprintf("attention_step%s %+v", past.name, s),
				inputs: []input{floats(Uniform(-2, 2), s.n, 1, s.heads*s.d), own, own, row, row,
					fixedType(tensor.I32, Integers(past.least, past.most), s.n)},
				run: one(device.AttentionStep{Heads: s.heads, KVHeads: s.kv}), tolerance: scores})
		}
	}
	return cases
}

func linearLossCases() []valueCase {
	var cases []valueCase
	for _, s := range []struct {
		rows, c, classes int
		ignored          bool // some rows have an ignored label
	}{{1, 1, 1, false}, {2, 3, 5, false}, {7, 16, 10, true}, {70, 24, 1003, true}, {5, 35, 3000, false},
		{130, 40, 130, true}, {300, 8, 2100, true}, {60, 112, 1101, true}, {1109, 16, 43, false}} {
		label := Integers(0, s.classes-1)
		labels := fixedType(tensor.I32, func(seed, i uint64) float64 {
			if s.ignored && i%5 < 2 {
				return -1 - float64(i) // every negative label is ignored
			}
			return label(seed, i)
		}, s.rows)
		large := s.rows*s.classes > 1<<15
		x, w, bias := floats(symmetric, s.rows, s.c), floats(symmetric, s.classes, s.c), params(symmetric, s.classes)
		scale := params(Uniform(0.001, 1), 1)
		// Sums of these products are exact, so all devices round a logit to the same value.
		eighths := func(seed, i uint64) float64 { return Integers(-8, 8)(seed, i) / 8 }
		both := []input{floats(eighths, s.rows, s.c), floats(eighths, s.classes, s.c), labels, scale}
		for _, biased := range []bool{false, true} {
			name := fmt.Sprintf(" %+v biased %t", s, biased)
			inputs := []input{x, w, labels}
			if biased {
				inputs, both = append(inputs, bias), append(both, params(eighths, s.classes))
			}
			cases = append(cases,
				valueCase{name: "linear_cross_entropy" + name, inputs: inputs, run: one(device.LinearCrossEntropy{}),
					tolerance: scores, large: large},
				valueCase{name: "linear_cross_entropy_diff" + name, inputs: append(append([]input{}, inputs...), scale),
					tolerance: scores, chain: true, large: large, needs: device.LinearCrossEntropyDiff{}.Kind(),
					run: func(r *Runner, in []Operand) []Operand {
						last := len(in) - 1
						saved := r.Do(device.LinearCrossEntropy{}, in[:last]...)
						return r.Do(device.LinearCrossEntropyDiff{},
							append([]Operand{in[0], in[1], in[2], saved[2], in[last]}, in[3:last]...)...)
					}},
				valueCase{name: "linear_cross_entropy_both" + name, inputs: both,
					run: one(device.LinearCrossEntropyBoth{}), tolerance: scores, chain: true,
					large: large, needs: device.LinearCrossEntropyBoth{}.Kind()})
		}
	}
	cases = append(cases, valueCase{name: "linear_cross_entropy without labels", run: one(device.LinearCrossEntropy{}),
		tolerance: exact,
		inputs: []input{floats(symmetric, 3, 4), floats(symmetric, 5, 4),
			fixedType(tensor.I32, Integers(-1, -1), 3)}})
	return cases
}

// transformerThreads returns the cases of runThreads.
func transformerThreads() []valueCase {
	op := device.Attention{Heads: 3, Packed: true, Causal: true}
	grouped := device.Attention{Heads: 4, KVHeads: 2, Causal: true}
	qkv, c := floats(symmetric, 2, 70, 3*24), 72
	return []valueCase{
		{name: "embedding_diff", inputs: []input{floats(symmetric, 5, 100, 40),
			fixedType(tensor.I32, Integers(0, 3), 5, 100)}, run: one(device.EmbeddingDiff{Rows: 9})},
		{name: "embedding_diff of positions", inputs: []input{floats(symmetric, 65, 30, 40)},
			run: one(device.EmbeddingDiff{Rows: 30, Positions: true})},
		{name: "layer_norm_diff", run: one(device.LayerNormDiff{}),
			inputs: []input{floats(symmetric, 300, 40), floats(symmetric, 300, 40),
				params(symmetric, 300), params(Uniform(1, 2), 300), params(symmetric, 40)}},
		{name: "bias_gelu_diff", inputs: []input{floats(symmetric, 300, c), floats(symmetric, 300, c),
			params(symmetric, c)}, run: one(device.BiasGELUDiff{Func: device.GELU})},
		{name: "attention_diff", inputs: []input{qkv, floats(symmetric, 2, 70, 24)},
			run: func(r *Runner, in []Operand) []Operand {
				saved := r.Do(op, in[0])
				return append(saved, r.Do(device.AttentionDiff{Attention: op}, in[1], saved[0], saved[1], in[0])...)
			}},
		{name: "attention_diff of shared heads", inputs: []input{floats(symmetric, 2, 70, 96),
			floats(symmetric, 2, 70, 48), floats(symmetric, 2, 70, 48), floats(symmetric, 2, 70, 96)},
			run: func(r *Runner, in []Operand) []Operand {
				saved := r.Do(grouped, in[:3]...)
				return append(saved, r.Do(device.AttentionDiff{Attention: grouped}, in[3], saved[0], saved[1], in[0],
					in[1], in[2])...)
			}},
	}
}

// badIDs runs ops with ids outside of their tables. The error must name the operand, the element, the id and the limit.
func badIDs(t conformance.T, dev device.Device, caps Caps) {
	table, diff := Random(tensor.F32, tensor.Shape{5, 4}, 1, symmetric),
		Random(tensor.F32, tensor.Shape{1, 3, 4}, 2, symmetric)
	ids := func(v ...float64) Tensor { return Of(tensor.I32, tensor.Shape{1, 3}, v...) }
	labels, lse, one := Of(tensor.I32, tensor.Shape{3}, 4, 5, -1), Random(tensor.F32, tensor.Shape{3}, 3, symmetric),
		Of(tensor.F32, tensor.Shape{1}, 1)
	rows := Random(tensor.F32, tensor.Shape{3, 4}, 4, symmetric)
	embedding := device.Embedding{To: tensor.F32}
	for _, c := range []struct {
		name string
		op   device.Op
		in   []Tensor
		says []string
	}{
		{"token beyond the vocabulary", embedding, []Tensor{ids(0, 4, 5), table},
			[]string{"tokens", "element 2", "got 5", "0 to 4"}},
		{"negative token", embedding, []Tensor{ids(0, -1, 3), table},
			[]string{"tokens", "element 1", "got -1", "0 to 4"}},
		{"segment beyond the table", embedding, []Tensor{ids(0, 1, 2), table, table, ids(0, 7, 1), table},
			[]string{"segments", "element 1", "got 7"}},
		{"gradient of a token beyond the vocabulary", device.EmbeddingDiff{Rows: 5}, []Tensor{diff, ids(9, 0, 0)},
			[]string{"ids", "element 0", "got 9", "0 to 4"}},
		{"label beyond the vocabulary", device.LinearCrossEntropy{}, []Tensor{rows, table, labels},
			[]string{"label 1", "got 5", "5 classes"}},
		{"gradient of a label beyond the vocabulary", device.LinearCrossEntropyDiff{},
			[]Tensor{rows, table, labels, lse, one}, []string{"label 1", "got 5", "5 classes"}},
		{"loss and gradient of a label beyond the vocabulary", device.LinearCrossEntropyBoth{},
			[]Tensor{rows, table, labels, one}, []string{"label 1", "got 5", "5 classes"}},
	} {
		if slices.Contains(caps.Lacks, c.op.Kind()) {
			continue
		}
		t.Run(c.name, func(t conformance.T) {
			r := NewRunner(t, dev)
			defer r.Close()
			r.Policy = Pinned
			l := device.Launch{Name: c.op.Kind()}
			var in []device.TensorSpec
			for _, x := range c.in {
				o := r.Upload(x)
				in, l.In = append(in, o.Spec), append(l.In, o.Region)
			}
			out, err := c.op.Infer(in)
			must(t, err)
			k := r.compile(c.op, in, out)
			for _, s := range k.Out() {
				l.Out = append(l.Out, r.Alloc(s.Size(), poison))
			}
			if n := k.Workspace(); n > 0 {
				l.Workspace = r.Alloc(n, poison)
			}
			l.Kernel = k
			p, err := dev.NewProgram([]device.Step{{Launch: &l}})
			must(t, err)
			r.programs = append(r.programs, p)
			err = r.stream.Run(p)
			if err == nil {
				err = r.stream.Sync()
			}
			if err == nil {
				t.Fatal("got no error")
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}
