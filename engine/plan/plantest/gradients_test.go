package plantest_test

import (
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan/plantest"
)

// swish computes x·sigmoid(x). It has a decomposition, but no kernel.
type swish struct{ slope float64 } // constant term of the gradient formula; only 1 is correct

func (swish) Kind() string { return "swish" }

func (swish) Infer(in []device.TensorSpec) ([]device.TensorSpec, error) { return in[:1], nil }

func (op swish) Gradient(g *graph.Graph, n *graph.Node, diff []*graph.Value, _ func(int) bool) []*graph.Value {
	x := n.In[0]
	s, rest := g.Unary("s", device.Sigmoid, x), g.Unary("1-s", device.Sigmoid, g.Unary("-x", device.Neg, x))
	slope := g.Binary("slope", device.Add, g.Binary("x(1-s)", device.Mul, x, rest), g.Full("one", x.DType, op.slope, 1))
	return []*graph.Value{g.Binary("diff", device.Mul, diff[0], g.Binary("s slope", device.Mul, s, slope))}
}

func (swish) Decompose(g *graph.Graph, in []*graph.Value) []*graph.Value {
	return []*graph.Value{g.Binary("y", device.Mul, in[0], g.Unary("s", device.Sigmoid, in[0]))}
}

// kernel is swish with a kernel in Go. The result is correct only if factor is 1.
type kernel struct {
	swish
	factor float64
}

func (op kernel) Compute(in, out []device.Elements) {
	for i, x := range in[0].Values {
		out[0].Values[i] = op.factor * x / (1 + math.Exp(-x))
	}
}

// short is swish with a wrong number of gradients.
type short struct{ swish }

func (short) Gradient(*graph.Graph, *graph.Node, []*graph.Value, func(int) bool) []*graph.Value {
	return nil
}

// empty is swish with an empty decomposition.
type empty struct{ swish }

func (empty) Decompose(*graph.Graph, []*graph.Value) []*graph.Value { return nil }

// bare is an op without a gradient and without a kernel.
type bare struct{}

func (bare) Kind() string                                              { return "bare" }
func (bare) Infer(in []device.TensorSpec) ([]device.TensorSpec, error) { return in[:1], nil }

// still is an op with a gradient, but without a kernel and without a decomposition.
type still struct{ bare }

func (still) Gradient(_ *graph.Graph, _ *graph.Node, diff []*graph.Value, _ func(int) bool) []*graph.Value {
	return diff
}

func TestGradientsFindsFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		op   device.Op
		want string // part of the error; "" for no error
	}{
		{"a decomposition", swish{slope: 1}, ""},
		{"a kernel", kernel{swish{slope: 1}, 1}, ""},
		{"a wrong gradient", swish{slope: 1.01}, "got the gradient"},
		{"a wrong kernel", kernel{swish{slope: 1}, 1.01}, "got the gradient"},
		{"too few gradients", short{}, "got 0 gradients, want 1"},
		{"too few outputs", empty{swish{slope: 1}}, "the decomposition has 0 outputs, want 1"},
		{"no gradient", bare{}, "does not implement graph.Differentiable"},
		{"no kernel", still{}, "does not implement graph.Decomposable"},
	} {
		err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
			x := g.Param("x", graph.Uniform(2), 2, 5)
			// Output y has two readers, so its gradients are summed. The op's input is a computed value, so the
			// gradient must reach x.
			y := g.Apply("y", c.op, g.Binary("x²", device.Mul, x, x))[0]
			return g.Binary("sum", device.Add, y, g.Apply("z", c.op, y)[0])
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
		return g.Full("y", g.ParamType(), 1, 4)
	}); err == nil {
		t.Error("a value without parameters: got no error")
	}
}
