package graph_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// differentiated returns a graph with gradients. build computes the logits (2, 3) from the input x (2, 3).
func differentiated(build func(g *graph.Graph, x *graph.Value) *graph.Value) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		logits := build(g, g.Input("x", tensor.F32, 2, 3))
		loss, _ := g.SoftmaxCrossEntropy("loss", logits, g.Input("labels", tensor.I32, 2), 0)
		g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
	})
}

// linear appends a linear layer with the weight (3, 3) and the given name.
func linear(g *graph.Graph, name string, x *graph.Value) *graph.Value {
	return g.Linear(name, x, g.Param(name+".weight", graph.Normal(1), 3, 3), nil, tensor.Invalid)
}

func TestWhichParametersGetGradientsAndInWhichOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(g *graph.Graph, x *graph.Value) *graph.Value
		want  string
	}{
		{"a chain: last layer first", func(g *graph.Graph, x *graph.Value) *graph.Value {
			return linear(g, "c", linear(g, "b", linear(g, "a", x)))
		}, "c.weight b.weight a.weight"},
		{"weight before bias", func(g *graph.Graph, x *graph.Value) *graph.Value {
			return g.Linear("a", x, g.Param("weight", graph.Normal(1), 3, 3), g.Param("bias", graph.Const(0), 3),
				tensor.Invalid)
		}, "weight bias"},
		{"a parameter read twice is done when its first reader is", func(g *graph.Graph, x *graph.Value) *graph.Value {
			w := g.Param("shared", graph.Normal(1), 3, 3)
			x = linear(g, "b", g.Linear("first", x, w, nil, tensor.Invalid))
			return g.Linear("second", x, w, nil, tensor.Invalid)
		}, "b.weight shared"},
		{"a parameter read twice by one node", func(g *graph.Graph, x *graph.Value) *graph.Value {
			w := g.Param("w", graph.Normal(1), 2, 3)
			return linear(g, "a", g.Binary("square", graph.Mul, w, w))
		}, "a.weight w"},
		{"a parameter that the loss does not depend on has none", func(g *graph.Graph, x *graph.Value) *graph.Value {
			g.Param("unread", graph.Normal(1), 3)
			linear(g, "dead end", x)
			return linear(g, "a", x)
		}, "a.weight"},
		{"a dead end that reads a parameter first does not keep its gradient back",
			func(g *graph.Graph, x *graph.Value) *graph.Value {
				w := g.Param("w", graph.Normal(1), 3, 3)
				g.Output("dead end", g.Linear("dead end", x, w, nil, tensor.Invalid))
				return linear(g, "b", g.Linear("a", x, w, nil, tensor.Invalid))
			}, "b.weight w"},
		{"a parameter that is normalised itself", func(g *graph.Graph, x *graph.Value) *graph.Value {
			y := g.BatchNorm("bn", g.Param("images", graph.Normal(1), 2, 3, 2, 2), graph.BatchNorm{
				Gamma: g.Param("gamma", graph.Const(1), 3), Beta: g.Param("beta", graph.Const(0), 3),
				RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 3)})
			return linear(g, "a", g.GlobalAvgPool("pool", y))
		}, "a.weight gamma beta images"},
		{"a frozen parameter, and what lies before the first trained one, have none",
			func(g *graph.Graph, x *graph.Value) *graph.Value {
				g.Freeze(func(name string, _ int) bool { return name != "b.weight" })
				return linear(g, "c", linear(g, "b", linear(g, "a", x)))
			}, "b.weight"},
		{"no parameters, no gradients", func(g *graph.Graph, x *graph.Value) *graph.Value { return x }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := differentiated(c.build)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, gr := range g.Gradients {
				got = append(got, gr.Param.Name)
				if !gr.Value.Shape.Equal(gr.Param.Shape) || gr.Value.DType != gr.Param.DType {
					t.Errorf("gradient of %v is %v", gr.Param, gr.Value)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

func TestNodesBelongToTheirPhase(t *testing.T) {
	g, err := differentiated(func(g *graph.Graph, x *graph.Value) *graph.Value {
		return linear(g, "b", linear(g, "a", x))
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range g.Nodes {
		got = append(got, map[graph.Phase]string{graph.Forward: "forward ", graph.Backward: "backward "}[n.Phase]+
			n.Name)
	}
	want := []string{"forward a", "forward b", "forward loss", "backward loss diff", "backward b diff weights",
		"backward b diff src", "backward a diff weights"}
	if !slices.Equal(got, want) { // the input has no gradient; gradients of weights come before gradients of sources
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNothingIsComputedBackwardBelowTheFirstTrainedLayer(t *testing.T) {
	g, err := differentiated(func(g *graph.Graph, x *graph.Value) *graph.Value {
		g.Freeze(func(_ string, layer int) bool { return layer < 2 })
		x = linear(g, "a", x)
		g.NextLayer()
		x = linear(g, "b", x)
		g.NextLayer()
		return linear(g, "c", x)
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range g.Nodes {
		if n.Phase == graph.Backward {
			got = append(got, n.Name)
		}
	}
	if want := []string{"loss diff", "c diff weights"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFrozenStatesLieBehindTheOthers(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		g.State("a", graph.Const(0), 1)
		g.FrozenState("b", graph.Const(0), 1)
		g.State("c", graph.Const(0), 1)
		g.FrozenState("d", graph.Const(0), 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, s := range g.States {
		names += s.Name
	}
	if names != "acbd" {
		t.Errorf("got the order %s, want acbd", names)
	}
}

func TestGradientsOfUnlikeTypesAreSummedInTheWiderOne(t *testing.T) {
	for _, swap := range []bool{false, true} { // both orders of the two contributions to the gradient
		g, err := graph.Build(func(g *graph.Graph) {
			w := g.Param("w", graph.Normal(1), 3, 3)
			low := g.Cast("low", w, tensor.BF16)
			x := g.Input("x", tensor.BF16, 3, 3)
			if swap {
				x = g.Binary("product", graph.Mul, x, low)
				x = g.Linear("linear", x, low, nil, tensor.Invalid)
			} else {
				x = g.Linear("linear", x, low, nil, tensor.Invalid)
				x = g.Binary("product", graph.Mul, x, low)
			}
			loss, _ := g.SoftmaxCrossEntropy("loss", x, g.Input("labels", tensor.I32, 3), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Gradients) != 1 || g.Gradients[0].Value.DType != tensor.F32 {
			t.Errorf("got %v, want one gradient in f32", g.Gradients)
		}
	}
}

// Every gradient must have the layout of its value. Communication between ranks and the choice of layouts rely on this
// rule.
func TestGradientsFollowTheirValues(t *testing.T) {
	g, err := differentiated(func(g *graph.Graph, x *graph.Value) *graph.Value {
		y := linear(g, "a", x)
		z := g.Unary("tanh", device.Tanh, y)
		return linear(g, "b", g.Binary("sum", graph.Add, g.Binary("product", graph.Mul, z, y), y))
	})
	if err != nil {
		t.Fatal(err)
	}
	follows := map[string]string{}
	for _, n := range g.Nodes {
		for _, out := range n.Out {
			if out.Follows != nil {
				follows[out.Name] = out.Follows.Name
			}
		}
	}
	for gradient, value := range map[string]string{
		"loss diff": "b", "b diff weights": "b.weight", "b diff src": "sum", "product diff a": "tanh",
		"product diff b": "a",
		"tanh diff":      "a", "a diff weights": "a.weight", "a sum": "a",
	} {
		if got, ok := follows[gradient]; !ok || got != value {
			t.Errorf("%s follows %q, want %s (all: %v)", gradient, got, value, follows)
		}
	}
}

func TestWhatHasNoGradientIsAnErrorNamingTheNode(t *testing.T) {
	for _, c := range []struct {
		name, node, text string
		build            func(g *graph.Graph)
	}{
		{"an input as the loss", "x", "the loss is not computed", func(g *graph.Graph) {
			g.Differentiate(g.Input("x", tensor.F32, 2), g.Input("scale", tensor.F32, 1))
		}},
		{"a second time", "loss", "has gradients already", func(g *graph.Graph) {
			loss, _ := g.SoftmaxCrossEntropy("loss", linear(g, "a", g.Input("x", tensor.F32, 2, 3)),
				g.Input("labels", tensor.I32, 2), 0)
			scale := g.Input("scale", tensor.F32, 1)
			g.Differentiate(loss, scale)
			g.Differentiate(loss, scale)
		}},
		{"a factor for each sample", "loss", "want the factor of shape (1)", func(g *graph.Graph) {
			loss, _ := g.SoftmaxCrossEntropy("loss", linear(g, "a", g.Input("x", tensor.F32, 2, 3)),
				g.Input("labels", tensor.I32, 2), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 2))
		}},
		// If there is one sample, weights and scales have the same shape.
		{"two scales of one sample", "loss", "got 2 contributions", func(g *graph.Graph) {
			loss, _ := g.SoftmaxCrossEntropy("loss", linear(g, "a", g.Input("x", tensor.F32, 1, 3)),
				g.Input("labels", tensor.I32, 1), 0)
			g.DifferentiateTerms(graph.Term{Loss: loss, Scale: g.Input("a scale", tensor.F32, 1)},
				graph.Term{Loss: loss, Scale: g.Input("b scale", tensor.F32, 1)})
		}},
		{"weights of another number of samples", "loss", "got weights of shape", func(g *graph.Graph) {
			loss, _ := g.SoftmaxCrossEntropy("loss", linear(g, "a", g.Input("x", tensor.F32, 2, 3)),
				g.Input("labels", tensor.I32, 2), 0)
			g.DifferentiateTerms(graph.Term{Loss: loss, Scale: g.Input("scale", tensor.F32, 1),
				Weights: g.Input("weights", tensor.F32, 1)})
		}},
		{"weights of a loss that has none", "b", "want one per sample", func(g *graph.Graph) {
			y := linear(g, "b", g.Input("x", tensor.F32, 2, 3))
			g.DifferentiateTerms(graph.Term{Loss: y, Scale: g.Input("scale", tensor.F32, 2, 3),
				Weights: g.Input("weights", tensor.F32, 2, 3)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { wantFault(t, c.build, c.node, c.text) })
	}
	for _, c := range []struct {
		name, node, text string
		// build appends an op between a parameter and the loss. y is (2, 3).
		build func(g *graph.Graph, y *graph.Value) *graph.Value
	}{
		{"maximum of two", "max", "binary max has no gradient", func(g *graph.Graph, y *graph.Value) *graph.Value {
			return g.Binary("max", device.Max, y, y)
		}},
		{"minimum of two", "min", "binary min has no gradient", func(g *graph.Graph, y *graph.Value) *graph.Value {
			return g.Binary("min", device.Min, y, y)
		}},
		{"maximum over a dimension", "largest", "has no gradient", func(g *graph.Graph, y *graph.Value) *graph.Value {
			return g.Reshape("back", g.Reduce("largest", device.Maximum, g.Concat("twice", 0, y, y, y), 1), 2, 3)
		}},
		{"an op without a rule", "second derivative", "unary_diff has no gradient",
			func(g *graph.Graph, y *graph.Value) *graph.Value {
				return g.Apply("second derivative", device.UnaryDiff{Func: device.Tanh}, y, y)[0]
			}},
		{"pooling without what training keeps", "pool", "pooled without Train",
			func(g *graph.Graph, y *graph.Value) *graph.Value {
				return g.Reshape("back", g.MaxPool2D("pool", g.Reshape("image", y, 2, 3, 1, 1), [2]int{1, 1}, unit,
					false),
					2, 3)
			}},
		{"normalisation with running statistics", "bn", "running statistics",
			func(g *graph.Graph, y *graph.Value) *graph.Value {
				return g.Reshape("back", g.BatchNorm("bn", g.Reshape("image", y, 2, 3, 1, 1), graph.BatchNorm{
					Gamma: g.Param("gamma", graph.Const(1), 3), Beta: g.Param("beta", graph.Const(0), 3),
					UseRunning:  true,
					RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 3)}), 2,
					3)
			}},
		{"a learned factor", "scaled", "factor", func(g *graph.Graph, y *graph.Value) *graph.Value {
			return g.Apply("scaled", device.Scale{}, y, g.Param("factor", graph.Const(1), 1))[0]
		}},
		{"the statistics themselves", "stats", "batch_norm_stats has no gradient",
			func(g *graph.Graph, y *graph.Value) *graph.Value {
				mean := g.Apply("stats", device.BatchNormStats{}, g.Reshape("image", y, 2, 3, 1, 1))[0]
				return g.Concat("twice", 0, mean, mean)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFault(t, func(g *graph.Graph) {
				y := c.build(g, linear(g, "a", g.Input("x", tensor.F32, 2, 3)))
				loss, _ := g.SoftmaxCrossEntropy("loss", y, g.Input("labels", tensor.I32, 2), 0)
				g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
			}, c.node, c.text)
		})
	}
}

func wantFault(t *testing.T, build func(*graph.Graph), node, text string) {
	t.Helper()
	_, err := graph.Build(build)
	var fault *graph.BuildError
	if !errors.As(err, &fault) || fault.Node != node || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want a BuildError of %s with %q", err, node, text)
	}
}
