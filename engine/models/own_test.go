package models_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/plan/plantest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// pieces returns a model that divides its activations (N·T, C) into columns, and concatenates the columns again.
func pieces(columns int) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		g, table := net.Graph, net.Table("table", 31, columns, 0.5)
		x := net.Rows(g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute))
		var parts []*graph.Value
		for i := range columns {
			parts = append(parts,
				g.Unary(fmt.Sprint("piece ", i), graph.Tanh, g.Slice(fmt.Sprint("cut ", i), x, 1, columns-1-i, 1)))
		}
		return models.Prediction{Rows: net.Projection("hidden", g.Concat("join", 1, parts...), columns, 0.5),
			Weight: table}
	}
}

// rotary builds a model like GPT, with rotary position embedding of q and k. The angles are constants for texts of at
// most 20 tokens.
func rotary(net *nn.Net, in models.Tokens) models.Prediction {
	const heads, half, channels, positions = 2, 4, 16, 20
	g, table := net.Graph, net.Table("table", 31, channels, 0.5)
	var cosines, sines []float64 // (positions, 1, 2, half)
	for at := range positions {
		for _, sign := range []float64{-1, 1} {
			for i := range half {
				angle := float64(at) / math.Pow(100, float64(i)/half)
				cosines, sines = append(cosines, math.Cos(angle)), append(sines, sign*math.Sin(angle))
			}
		}
	}
	cos, sin := net.Constant("rotary.cos", cosines, positions, 1, 2, half),
		net.Constant("rotary.sin", sines, positions, 1, 2, half)
	n, t := in.Tokens.Shape[0], in.Tokens.Shape[1]
	turn := func(name string, x *graph.Value) *graph.Value {
		x = g.Reshape(name+" pairs", x, n, t, heads, 2, half)
		swapped := g.Concat(name+" swapped", 3, g.Slice(name+" second", x, 3, 1, 1), g.Slice(name+" first", x, 3, 0, 1))
		x = g.Binary(name+" turned", graph.Add, g.Binary(name+" cos", graph.Mul, x, g.Slice("cos", cos, 0, 0, t)),
			g.Binary(name+" sin", graph.Mul, swapped, g.Slice("sin", sin, 0, 0, t)))
		return g.Reshape(name+" turned", x, n, t, channels)
	}
	x := g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute)
	q, k := turn("q", net.Projection("q", x, channels, 0.5)), turn("k", net.Projection("k", x, channels, 0.5))
	a := net.Attention("attention", nn.Attention{Heads: heads, Causal: true}, q, k,
		net.Projection("v", x, channels, 0.5))
	return models.Prediction{Rows: net.Rows(net.Projection("out", a, channels, 0.5)), Weight: table}
}

// Constants must have no gradient. Ops that read constants must compute the gradients of their other operands.
func TestConstantsAreNotTrained(t *testing.T) {
	err := plantest.Gradients(func(g *graph.Graph) *graph.Value {
		net := &nn.Net{Graph: g, Training: true, Compute: tensor.F64}
		x := g.Param("x", graph.Uniform(1), 5, 3)
		c := net.Constant("constant", []float64{0.5, -2, 3, 7, 1, -1, 0.25, 9, 2, 4, 8, 6}, 4, 3)
		y := g.Binary("scaled", graph.Mul, x, g.Slice("row", c, 0, 1, 1))
		return g.Concat("y", 0, g.Unary("t", graph.Tanh, y),
			g.Binary("sum", graph.Add, c, g.Slice("first", y, 0, 0, 1)))
	})
	if err != nil {
		t.Error(err)
	}
	for _, compute := range []tensor.DType{tensor.F32, tensor.BF16} {
		g, err := graph.Build(func(g *graph.Graph) {
			net := &nn.Net{Graph: g, Training: true, Compute: compute}
			p := rotary(net, models.Tokens{Tokens: g.Input("tokens", tensor.I32, 2, 7)})
			l, _ := g.LinearCrossEntropy("loss", p.Rows, p.Weight, g.Input("labels", tensor.I32, 14), nil)
			g.Differentiate(l, g.Input("scale", tensor.F32, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(g.States) != 2 || !g.States[0].Frozen || len(g.Gradients) != len(g.Params) || len(g.Params) != 9 {
			t.Errorf("%v: got %d constants, %d parameters and %d gradients, want 2, 9 and 9", compute, len(g.States),
				len(g.Params), len(g.Gradients))
		}
	}
	_, err = graph.Build(func(g *graph.Graph) {
		(&nn.Net{Graph: g, Compute: tensor.F32}).Constant("c", make([]float64, 5), 2, 3)
	})
	if err == nil || !strings.Contains(err.Error(), "c: got 5 values, want 6 for shape (2, 3)") {
		t.Errorf("got %v, want an error with the number of values", err)
	}
}

// A model of a user may contain an op with more inputs than a kernel of a device accepts.
func TestOwnModelsGiveEqualGradientsOnEveryDevice(t *testing.T) {
	for name, model := range map[string]models.Language{"40 values in one concat": pieces(40),
		"300 values in one concat": pieces(300), "rotary embedding": rotary} {
		t.Run(name, func(t *testing.T) {
			compare(t, model, reference.New(), openCPU(t))
		})
	}
}

// compare requires equal losses and gradients of a model on two devices. They may differ by the order of f32 sums.
func compare(t *testing.T, model models.Language, one, other device.Device) {
	t.Helper()
	loss, want := share(t, one, model, []int{0, 1, 2}, 13)
	got, grads := share(t, other, model, []int{0, 1, 2}, 13)
	if !(math.Abs(got/loss-1) < 1e-6) {
		t.Errorf("got loss %.9g, want %.9g", got, loss)
	}
	for name, v := range want {
		diff := make([]float64, len(v))
		for i := range v {
			diff[i] = grads[name][i] - v[i]
		}
		if d := norm(diff); !(norm(v) > 1e-7 && d <= 1e-5*norm(v)) {
			t.Errorf("gradient of %s differs by %g of %g", name, d, norm(v))
		}
	}
}
