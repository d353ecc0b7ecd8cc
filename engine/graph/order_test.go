package graph_test

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Ranks that compute in different types add the same gradient buffers. The type must therefore not affect the order of
// gradients.
func TestGradientsComeInOneOrderInAllTypes(t *testing.T) {
	names := func(dt tensor.DType) (names []string) {
		g, err := graph.Build(func(g *graph.Graph) {
			x := g.Input("x", dt, 2, 4)
			shared, bias := g.Param("shared", graph.Const(1), 4, 4), g.Param("bias", graph.Const(0), 4)
			x = g.Linear("first", x, shared, bias, tensor.Invalid)
			x = g.Linear("second", x, shared, nil, tensor.Invalid)
			x = g.Linear("third", x, g.Param("weight", graph.Const(1), 3, 4), g.Param("last", graph.Const(0), 3),
				tensor.F32)
			loss, _ := g.SoftmaxCrossEntropy("loss", x, g.Input("labels", tensor.I32, 2), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, gradient := range g.Gradients {
			names = append(names, gradient.Param.Name)
		}
		return names
	}
	want := []string{"weight", "last", "shared", "bias"}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if got := names(dt); !slices.Equal(got, want) {
			t.Errorf("%v: got gradients %v, want %v", dt, got, want)
		}
	}
}
