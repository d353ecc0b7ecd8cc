package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// leaves declares the operands of a rule under test. All operands are parameters, so each of them gets a gradient.
type leaves struct {
	*graph.Graph
	samples int  // number of sample ids (for dropout), and of lengths
	loss    bool // the value contains the losses of rows, not logits
}

// param declares a parameter with values in [-1, 1).
func (l *leaves) param(shape ...int) *graph.Value { return l.in(-1, 1, shape) }

// positive declares a parameter with values in [0.5, 2), for logarithms, roots and divisions.
func (l *leaves) positive(shape ...int) *graph.Value { return l.in(0.5, 2, shape) }

func (l *leaves) in(low, high float64, shape []int) *graph.Value {
	return l.Param(fmt.Sprintf("p%d", len(l.Params)), graph.Init{Kind: graph.Interval, A: low, B: high}, shape...)
}

// norm returns a BatchNorm over c channels.
func (l *leaves) norm(c int) graph.BatchNorm {
	name := fmt.Sprint("s", len(l.States))
	return graph.BatchNorm{Gamma: l.positive(c), Beta: l.param(c), Eps: 1e-3, Momentum: 0.1,
		RunningMean: l.State(name+" mean", graph.Const(0), c), RunningVar: l.State(name+" var", graph.Const(1), c)}
}

// frozenNorm returns a BatchNorm over c channels with fixed statistics.
func (l *leaves) frozenNorm(c int) graph.BatchNorm {
	name := fmt.Sprint("s", len(l.States))
	return graph.BatchNorm{Gamma: l.positive(c), Beta: l.param(c), Eps: 1e-3, UseRunning: true,
		RunningMean: l.FrozenState(name+" mean", graph.Const(0.25), c),
		RunningVar:  l.FrozenState(name+" var", graph.Const(0.5), c)}
}

// window returns a Window from stride, padding and dilation, each for height and width.
func window(sh, sw, ph, pw, dh, dw int) graph.Window {
	return graph.Window{Stride: [2]int{sh, sw}, Padding: [2]int{ph, pw}, Dilation: [2]int{dh, dw}}
}

var unit = window(1, 1, 0, 0, 1, 1)

// ruleCase is a rule under test. build computes a value from parameters alone. The test reshapes this value to logits.
type ruleCase struct {
	name  string
	build func(l *leaves) *graph.Value
}

var ruleCases = []ruleCase{
	{"conv", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 3, 4, 4), l.param(2, 3, 3, 3), nil, unit, 1)
	}},
	{"conv with a bias", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 2, 3, 4), l.param(3, 2, 2, 2), l.param(3), unit, 1)
	}},
	{"conv of stride 2 that leaves rows over", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(1, 2, 6, 5), l.param(2, 2, 3, 3), nil, window(2, 2, 0, 0, 1, 1), 1)
	}},
	{"conv of unlike strides and paddings", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 2, 4, 5), l.param(3, 2, 3, 2), nil, window(1, 3, 2, 1, 1, 1), 1)
	}},
	{"conv with dilation", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(1, 2, 5, 6), l.param(2, 2, 2, 3), nil, window(1, 2, 1, 2, 3, 2), 1)
	}},
	{"conv in groups", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 4, 3, 3), l.param(6, 2, 2, 2), l.param(6), window(1, 1, 1, 0, 1, 1), 2)
	}},
	{"depthwise conv", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 3, 4, 4), l.param(3, 1, 3, 3), nil, window(2, 2, 1, 1, 1, 1), 3)
	}},
	{"1x1 conv of stride 2", func(l *leaves) *graph.Value {
		return l.Conv2D("y", l.param(2, 3, 3, 3), l.param(2, 3, 1, 1), nil, window(2, 2, 0, 0, 1, 1), 1)
	}},
	{"linear", func(l *leaves) *graph.Value {
		return l.Linear("y", l.param(3, 4), l.param(5, 4), nil, tensor.Invalid)
	}},
	{"linear with a bias", func(l *leaves) *graph.Value {
		return l.Linear("y", l.param(3, 4), l.param(5, 4), l.param(5), tensor.F64)
	}},
	{"max pooling of overlapping windows", func(l *leaves) *graph.Value {
		return l.MaxPool2D("y", l.param(2, 2, 5, 4), [2]int{3, 3}, window(2, 2, 1, 1, 1, 1), true)
	}},
	{"max pooling with dilation", func(l *leaves) *graph.Value {
		return l.MaxPool2D("y", l.param(1, 2, 6, 5), [2]int{2, 3}, window(1, 2, 0, 1, 3, 2), true)
	}},
	{"average pooling, padding not counted", func(l *leaves) *graph.Value {
		return l.AvgPool2D("y", l.param(2, 2, 5, 4), [2]int{3, 2}, window(2, 1, 1, 1, 1, 1), false)
	}},
	{"average pooling, padding counted", func(l *leaves) *graph.Value {
		return l.AvgPool2D("y", l.param(2, 2, 5, 4), [2]int{3, 2}, window(2, 1, 1, 1, 1, 1), true)
	}},
	{"global average pooling", func(l *leaves) *graph.Value { return l.GlobalAvgPool("y", l.param(2, 3, 2, 3)) }},
	{"dropout", func(l *leaves) *graph.Value {
		l.samples = 3
		return l.Dropout("y", l.param(3, 2, 5), l.Input("ids", tensor.I64, 3), l.Input("key", tensor.U32, 2), 0.4, 7)
	}},
	{"scale", func(l *leaves) *graph.Value {
		return l.Apply("y", device.Scale{}, l.param(3, 4), l.Input("factor", tensor.F64, 1))[0]
	}},
	{"cast to the same type", func(l *leaves) *graph.Value {
		return l.Cast("y", l.Cast("once", l.param(3, 4), tensor.F64), tensor.F64)
	}},
	{"reshape", func(l *leaves) *graph.Value {
		return l.Unary("y", device.Tanh, l.Reshape("r", l.param(2, 6), 3, 2, 2))
	}},
	{"reshape of something computed, twice", func(l *leaves) *graph.Value {
		x := l.Unary("x", device.Tanh, l.param(2, 6))
		return l.Binary("y", graph.Mul, l.Reshape("a", x, 12), l.Reshape("b", l.Unary("x2", device.Square, x), 12))
	}},
	{"transpose that is not its own inverse", func(l *leaves) *graph.Value {
		return l.Binary("y", graph.Mul, l.Transpose("t", l.param(2, 3, 4), 2, 0, 1), l.param(4, 2, 3))
	}},
	{"concat of unlike extents", func(l *leaves) *graph.Value {
		return l.Unary("y", device.Tanh, l.Concat("c", 1, l.param(2, 1, 3), l.param(2, 3, 3), l.param(2, 2, 3)))
	}},
	{"concat of more values than a kernel reads", func(l *leaves) *graph.Value {
		var parts []*graph.Value
		for i := range 40 {
			parts = append(parts, l.param(2, 1+i%2))
		}
		return l.Unary("y", device.Tanh, l.Concat("c", 1, parts...))
	}},
	{"concat of a value with itself", func(l *leaves) *graph.Value {
		x := l.param(2, 3)
		return l.Binary("y", graph.Mul, l.Concat("c", 0, x, x), l.param(4, 3))
	}},
	{"slice", func(l *leaves) *graph.Value { return l.Slice("y", l.param(3, 5, 2), 1, 2, 2) }},
	{"pad", func(l *leaves) *graph.Value {
		return l.Apply("y", device.Pad{Axis: 1, Start: 2, Size: 6}, l.param(3, 2))[0]
	}},
	{"sum over outer and inner dimensions", func(l *leaves) *graph.Value {
		return l.Reduce("y", device.Sum, l.param(2, 3, 4, 2), 0, 2)
	}},
	{"mean over a dimension", func(l *leaves) *graph.Value { return l.Reduce("y", device.Mean, l.param(3, 4, 2), 1) }},
	{"mean of everything", func(l *leaves) *graph.Value {
		return l.Binary("y", graph.Mul, l.param(6), l.Reshape("r", l.Reduce("m", device.Mean, l.param(3, 4), 0, 1), 1))
	}},
	{"broadcast", func(l *leaves) *graph.Value {
		return l.Binary("y", graph.Mul, l.param(3, 2, 4),
			l.Apply("b", device.Broadcast{Shape: tensor.Shape{3, 2, 4}, Axes: []int{0, 2}}, l.param(2))[0])
	}},
	{"a value read by four nodes", func(l *leaves) *graph.Value {
		x := l.Unary("x", device.Sigmoid, l.param(2, 5))
		y := l.Binary("a", graph.Mul, l.Unary("b", device.Tanh, x), x)
		y = l.Binary("c", graph.Add, y, l.Unary("d", device.Square, x))
		return l.Binary("y", device.Sub, y, l.Unary("e", device.GELU, x))
	}},
	{"a parameter read by two convolutions", func(l *leaves) *graph.Value {
		w := l.param(2, 2, 3, 3)
		x := l.Conv2D("a", l.param(2, 2, 4, 4), w, nil, window(1, 1, 1, 1, 1, 1), 1)
		return l.Conv2D("b", l.Unary("t", device.Tanh, x), w, nil, window(2, 2, 1, 1, 1, 1), 1)
	}},
	{"a parameter that is weight, operand and image", func(l *leaves) *graph.Value {
		w := l.param(2, 2, 3, 3)
		x := l.Conv2D("y", w, w, nil, window(1, 1, 1, 1, 1, 1), 1)
		return l.Binary("sum", graph.Add, x, w)
	}},
	{"a parameter with a dead end before it", func(l *leaves) *graph.Value {
		w := l.param(4, 4)
		l.Output("dead end", l.Unary("t", device.Tanh, w))
		return l.Linear("y", l.param(2, 4), w, nil, tensor.Invalid)
	}},
	{"two parameters of one gradient", func(l *leaves) *graph.Value {
		return l.Unary("y", device.Tanh, l.Binary("sum", graph.Add, l.param(3, 4), l.param(3, 4)))
	}},
}

// batchNormCases returns a case for each combination of four choices: ReLU, residual, number of contributions to the
// gradient, and group size.
func batchNormCases() []ruleCase {
	var cases []ruleCase
	for _, relu := range []bool{false, true} {
		for _, add := range []bool{false, true} {
			for readers := 1; readers <= 3; readers++ {
				for _, group := range []int{0, 2} { // in groups of 2, the 5 samples form groups of 2, 2 and 1
					name := fmt.Sprintf("batch norm, relu %v, residual %v, %d contributions, group %d", relu, add,
						readers, group)
					cases = append(cases, ruleCase{name, func(l *leaves) *graph.Value {
						x, bn := l.param(5, 2, 2, 1), l.norm(2)
						bn.ReLU, bn.Group = relu, group
						if add {
							bn.Residual = l.param(5, 2, 2, 1)
						}
						y := l.BatchNorm("y", x, bn)
						parts := make([]*graph.Value, readers)
						for i := range parts {
							parts[i] = l.Binary(fmt.Sprint("part", i), graph.Mul, y, l.param(2, 2, 1))
						}
						return l.Concat("c", 1, parts...)
					}})
				}
			}
		}
	}
	for _, c := range []struct {
		relu, add bool
		readers   int
	}{{false, false, 1}, {true, false, 1}, {true, true, 1}, {false, true, 2}, {true, false, 2}, {true, true, 3}} {
		cases = append(cases, ruleCase{fmt.Sprintf("batch norm with frozen statistics, %+v", c),
			func(l *leaves) *graph.Value {
				x, bn := l.param(3, 2, 2, 1), l.frozenNorm(2)
				if bn.ReLU = c.relu; c.add {
					bn.Residual = l.param(3, 2, 2, 1)
				}
				y := l.BatchNorm("y", x, bn)
				parts := make([]*graph.Value, c.readers)
				for i := range parts {
					parts[i] = l.Binary(fmt.Sprint("part", i), graph.Mul, y, l.param(2, 2, 1))
				}
				return l.Concat("c", 1, parts...)
			}})
	}
	return append(cases,
		ruleCase{"batch norm that is frozen as a whole", func(l *leaves) *graph.Value {
			l.Freeze(func(name string, _ int) bool { return name == "p0" || name == "p1" })
			bn := l.frozenNorm(2)
			bn.ReLU = true
			return l.BatchNorm("y", l.param(3, 2, 2, 1), bn)
		}},
		ruleCase{"batch norm of an image that needs no gradient", func(l *leaves) *graph.Value {
			bn := l.norm(2)
			bn.ReLU = true
			return l.BatchNorm("y", l.Input("images", tensor.F64, 5, 2, 2, 1), bn)
		}},
		ruleCase{"batch norm whose residual is its own input", func(l *leaves) *graph.Value {
			bn := l.norm(3)
			x := l.Unary("x", device.Tanh, l.param(3, 3, 2, 2))
			bn.ReLU, bn.Residual = true, x
			return l.BatchNorm("y", x, bn)
		}},
		ruleCase{"batch norm of groups larger than the batch", func(l *leaves) *graph.Value {
			bn := l.norm(2)
			bn.Group = 8
			return l.BatchNorm("y", l.param(3, 2, 2, 2), bn)
		}},
	)
}

func elementWiseCases() []ruleCase {
	var cases []ruleCase
	for f := device.ReLU; f <= device.Abs; f++ {
		cases = append(cases, ruleCase{f.String(), func(l *leaves) *graph.Value {
			if f == device.Log || f == device.Sqrt {
				return l.Unary("y", f, l.positive(3, 5))
			}
			return l.Unary("y", f, l.param(3, 5))
		}})
	}
	for f := device.Add; f <= device.Div; f++ {
		for name, shape := range map[string][]int{
			"of one shape": {3, 2, 4}, "with b for each channel": {2, 1}, "with b of ones": {1, 2, 1},
			"with b of fewer dimensions": {4}, "with a single b": {1},
		} {
			cases = append(cases, ruleCase{fmt.Sprint(f, " ", name), func(l *leaves) *graph.Value {
				return l.Binary("y", f, l.param(3, 2, 4), l.positive(shape...))
			}})
		}
		cases = append(cases, ruleCase{fmt.Sprint(f, " of a value with a function of itself"),
			func(l *leaves) *graph.Value {
				x := l.Unary("x", device.Exp, l.param(2, 5))
				return l.Binary("y", f, x, l.Unary("x2", device.Square, x))
			}}, ruleCase{fmt.Sprint(f, " of a parameter with itself"), func(l *leaves) *graph.Value {
			x := l.positive(2, 5)
			return l.Binary("z", graph.Add, l.Binary("y", f, x, x), l.Unary("x2", device.Square, x))
		}})
	}
	return cases
}

// differentiate appends a loss and its gradients. The elements of y are the logits of one sample.
func differentiate(g *graph.Graph, y *graph.Value) {
	n := int(y.Shape.Elements())
	loss, _ := g.SoftmaxCrossEntropy("loss", g.Reshape("logits", y, 1, n), g.Input("labels", tensor.I32, 1), 0.1)
	g.Output("loss", loss)
	g.Differentiate(loss, g.Input("scale", g.ParamType(), 1))
}

// The test compares gradients with central differences of the loss in f64. A difference has two errors. The first one
// is h²/6 times the third derivative, about 1e-11 here. The second one is the rounding error of the loss, 1e-16/h =
// 1e-11, times a scale of at most 100. The largest gradient is of order 1, so the tolerance of 1e-7 exceeds both
// errors. Mistakes in a rule cause larger errors. The values are fixed, and none of them is within h of a kink.
func TestRulesEqualFiniteDifferences(t *testing.T) {
	const h, tolerance = 1e-5, 1e-7
	seen := map[string]bool{}
	for _, c := range slices.Concat(ruleCases, batchNormCases(), elementWiseCases(), transformerRules()) {
		if seen[c.name] {
			t.Fatalf("two cases are called %q", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			var samples int
			var scale float64
			g, err := graph.Build(func(g *graph.Graph) {
				g.UseF64()
				l := &leaves{Graph: g}
				y := c.build(l)
				samples, scale = l.samples, float64(y.Shape.Elements())
				if l.loss {
					g.Output("loss", y)
					g.Differentiate(y, g.Input("scale", tensor.F64, 1))
				} else {
					differentiate(g, y)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, reference.New(), g)
			defer r.close()
			r.optional("labels", []float64{1})
			r.input("scale", []float64{scale})
			r.optional("tokens", []float64{3, 0, 3, 2, 3, 1})
			r.optional("segments", []float64{1, 0, 0, 1, 1, 1})
			r.optional("lengths", []float64{2, 3, 0}[:samples])
			r.optional("row labels", []float64{4, -1, 0, 2, -5, 3})
			r.optional("key", []float64{11, 13})
			r.optional("factor", []float64{-1.5})
			r.optional("images", []float64{0.9, -0.7, 0.4, 0.1, -0.3, 0.8, -0.6, 0.2, 0.5, -0.1, 0.35, -0.9, 0.7, -0.4,
				0.6, 0.15, -0.8, 0.3, -0.2, 0.45})
			r.optional("ids", []float64{5, 6, 1 << 40}[:samples])
			r.run(true)
			grads := map[string][]float64{}
			largest := 0.0
			for _, p := range r.state.Params.Params {
				if p.Frozen {
					continue
				}
				grads[p.Name] = r.gradient(p.Name)
				for _, v := range grads[p.Name] {
					largest = max(largest, math.Abs(v))
				}
			}
			if largest < 1e-2 {
				t.Errorf("the largest gradient is %g: the case tests nothing", largest)
			}
			for _, p := range r.state.Params.Params {
				if p.Frozen {
					continue
				}
				values := r.read(r.state.Values, p)
				for i, v := range values {
					at := func(x float64) float64 {
						values[i] = x
						r.write(r.state.Values, p, values)
						r.run(true) // the backward pass may compute the loss
						return r.loss() * scale
					}
					want := (at(v+h) - at(v-h)) / (2 * h)
					at(v)
					if got := grads[p.Name][i]; !(math.Abs(got-want) <= tolerance*largest) {
						t.Fatalf("%s[%d]: gradient %.9g, finite difference %.9g", p.Name, i, got, want)
					}
				}
			}
		})
	}
}

// optional writes an input, unless the plan lacks it.
func (r *rig) optional(name string, v []float64) {
	r.t.Helper()
	if _, _, err := r.plan.Input(name); err == nil {
		r.input(name, v)
	}
}

// mixedCases are rules whose activations have the type compute. Parameters and gradients are f32 if compute is bf16,
// and f64 if compute is f64.
var mixedCases = []struct {
	name  string
	build func(l *leaves, x *graph.Value, compute tensor.DType) *graph.Value // x has shape (4, 3, 4, 4)
}{
	{"convolution of a cast parameter", func(l *leaves, x *graph.Value, _ tensor.DType) *graph.Value {
		return l.Conv2D("y", x, l.param(2, 3, 3, 3), l.param(2), unit, 1)
	}},
	{"one cast for two convolutions", func(l *leaves, x *graph.Value, _ tensor.DType) *graph.Value {
		w := l.param(3, 3, 3, 3)
		y := l.Conv2D("a", x, w, nil, window(1, 1, 1, 1, 1, 1), 1)
		return l.Conv2D("b", l.Unary("t", device.Tanh, y), w, nil, window(2, 2, 1, 1, 1, 1), 1)
	}},
	{"a cast parameter that is weight and operand", func(l *leaves, x *graph.Value, compute tensor.DType) *graph.Value {
		w := l.Cast("low", l.param(3, 3, 4, 4), compute)
		return l.Conv2D("y", l.Binary("sum", graph.Mul, x, l.Slice("s", w, 0, 1, 1)), w, nil, unit, 1)
	}},
	{"linear to full precision", func(l *leaves, x *graph.Value, _ tensor.DType) *graph.Value {
		return l.Linear("y", l.GlobalAvgPool("pool", x), l.param(5, 3), l.param(5), l.ParamType())
	}},
	{"linear from full to low precision", func(l *leaves, x *graph.Value, compute tensor.DType) *graph.Value {
		y := l.Linear("y", l.Cast("up", l.GlobalAvgPool("pool", x), l.ParamType()), l.param(5, 3), l.param(5), compute)
		return l.Unary("t", device.Tanh, y)
	}},
	{"normalisation", func(l *leaves, x *graph.Value, _ tensor.DType) *graph.Value {
		bn := l.norm(3)
		bn.ReLU, bn.Group = true, 2
		return l.BatchNorm("y", l.Conv2D("conv", x, l.param(3, 3, 1, 1), nil, unit, 1), bn)
	}},
}

// The test compares gradients with those of the same graph in f64. A bf16 number has 8 significant bits, so each stored
// tensor has an error of up to 2⁻⁹ of its norm. A few such tensors are between a parameter and the loss, so 2 % covers
// their errors. A missing factor or contribution causes an error above 2 %.
func TestGradientsInBF16AreThoseOfF64(t *testing.T) {
	for _, c := range mixedCases {
		t.Run(c.name, func(t *testing.T) {
			var truth map[string][]float64
			for _, compute := range []tensor.DType{tensor.F64, tensor.BF16} {
				g, err := graph.Build(func(g *graph.Graph) {
					if compute == tensor.F64 {
						g.UseF64()
					}
					x := g.ImageNormalize("normalize", g.Input("bytes", tensor.U8, 4, 4, 4, 3),
						[]float32{0.5, 0.5, 0.5}, []float32{0.5, 0.5, 0.5}, compute)
					y := c.build(&leaves{Graph: g}, x, compute)
					differentiate(g, g.Cast("full", y, g.ParamType()))
				})
				if err != nil {
					t.Fatal(err)
				}
				r := newRig(t, reference.New(), g)
				bytes := make([]float64, 4*4*4*3)
				for i := range bytes {
					bytes[i] = float64(i * 97 % 251)
				}
				r.input("bytes", bytes)
				r.input("labels", []float64{1})
				r.input("scale", []float64{1})
				r.run(true)
				grads := map[string][]float64{}
				for _, p := range r.state.Params.Params {
					grads[p.Name] = r.gradient(p.Name)
				}
				r.close()
				if truth == nil {
					truth = grads
					continue
				}
				for name, want := range truth {
					if rel := distance(grads[name], want); !(rel < 0.02) {
						t.Errorf("%s: gradient differs by %.3g of its norm, want less than 0.02", name, rel)
					}
				}
			}
		})
	}
}

// distance returns ‖got - want‖ / ‖want‖.
func distance(got, want []float64) float64 {
	var diff, norm float64
	for i := range want {
		diff += (got[i] - want[i]) * (got[i] - want[i])
		norm += want[i] * want[i]
	}
	return math.Sqrt(diff / norm)
}
