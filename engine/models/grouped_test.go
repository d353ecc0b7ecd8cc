package models_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// grouped is an attention layer whose 6 heads of q share the given number of heads of k and v. If repeat is set, the model
// repeats k and v for each head of q.
func grouped(shared int, causal, repeat bool) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		const heads, d = 6, 4
		g, table := net.Graph, net.Table("table", 31, heads*d, 0.5)
		n, t := in.Tokens.Shape[0], in.Tokens.Shape[1]
		x := g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute)
		q, k, v := net.Projection("q", x, heads*d, 0.5), net.Projection("k", x, shared*d, 0.5), net.Projection("v", x, shared*d, 0.5)
		layer := nn.Attention{Heads: heads, KVHeads: shared, Causal: causal, Lengths: in.Lengths, Dropout: 0.2}
		if repeat {
			repeated := func(name string, x *graph.Value) *graph.Value {
				x = g.Reshape(name, x, n, t, shared, 1, d)
				return g.Reshape(name, g.Concat(name, 3, slices.Repeat([]*graph.Value{x}, heads/shared)...), n, t, heads*d)
			}
			k, v, layer.KVHeads = repeated("repeated k", k), repeated("repeated v", v), 0
		}
		return models.Prediction{Rows: net.Rows(net.Projection("out", net.Attention("attention", layer, q, k, v), heads*d, 0.5)), Weight: table}
	}
}

// Shared heads give the bits of repeated ones, except that the gradients of k and v are sums in another order.
func TestSharedHeadsEqualRepeatedHeads(t *testing.T) {
	for _, open := range []func(t *testing.T) device.Device{func(*testing.T) device.Device { return reference.New() }, openCPU} {
		dev := open(t)
		for _, shared := range []int{1, 2, 3} {
			for _, causal := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d shared heads causal %t", dev.Info().Kind, shared, causal), func(t *testing.T) {
					loss, want := share(t, dev, grouped(shared, causal, true), []int{0, 1, 2}, 13)
					got, grads := share(t, dev, grouped(shared, causal, false), []int{0, 1, 2}, 13)
					if got != loss {
						t.Errorf("got loss %.9g, want %.9g", got, loss)
					}
					for name, v := range want {
						if name == "k.bias" { // 0 except for rounding: a number added to all scores of a query changes no probability
							continue
						}
						if (name == "q.weight" || name == "out.weight") && !slices.Equal(v, grads[name]) {
							t.Errorf("gradient of %s differs", name)
						}
						diff := make([]float64, len(v))
						for i := range v {
							diff[i] = grads[name][i] - v[i]
						}
						if d := norm(diff); len(v) != len(grads[name]) || !(norm(v) > 1e-7 && d <= 1e-6*norm(v)) {
							t.Errorf("gradient of %s differs by %g of %g", name, d, norm(v))
						}
					}
				})
			}
		}
	}
}
