package models_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// grouped returns a model with grouped-query attention. It has 6 query heads, and the given number of key/value heads.
// If repeat is set, the model instead repeats keys and values for each query head.
func grouped(shared int, causal, repeat bool) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		const heads, d = 6, 4
		g, table := net.Graph, net.Table("table", 31, heads*d, 0.5)
		x := g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute)
		q, k, v := net.Projection("q", x, heads*d, 0.5), net.Projection("k", x, shared*d, 0.5),
			net.Projection("v", x, shared*d, 0.5)
		layer := nn.Attention{Heads: heads, KVHeads: shared, Causal: causal, Lengths: in.Lengths, Dropout: 0.2}
		if repeat {
			k, v, layer.KVHeads = repeated(g, "k", k, shared, heads/shared), repeated(g, "v", v, shared, heads/shared),
				0
		}
		return models.Prediction{
			Rows:   net.Rows(net.Projection("out", net.Attention("attention", layer, q, k, v), heads*d, 0.5)),
			Weight: table}
	}
}

// repeated returns x (N, T, shared·D) in which each head occurs times times.
func repeated(g *graph.Graph, name string, x *graph.Value, shared, times int) *graph.Value {
	n, t, c := x.Shape[0], x.Shape[1], x.Shape[2]
	x = g.Reshape(name, x, n, t, shared, 1, c/shared)
	return g.Reshape(name, g.Concat(name, 3, slices.Repeat([]*graph.Value{x}, times)...), n, t, times*c)
}

// Shared key/value heads and repeated heads must give bit-equal results. The gradients of k and v may differ, because
// they are sums in another order.
func TestSharedHeadsEqualRepeatedHeads(t *testing.T) {
	for _, open := range []func(t *testing.T) device.Device{func(*testing.T) device.Device { return reference.New() },
		openCPU} {
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
						if name == "k.bias" {
							// The gradient is 0 except for rounding. If the same number is added to all scores of a
							// query, the probabilities do not change.
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

// BenchmarkSharedHeads compares grouped-query attention with attention on repeated keys and values. There are 8 query
// heads and 2 key/value heads. It times forward and backward pass of 4 samples of 512 positions.
func BenchmarkSharedHeads(b *testing.B) {
	const n, t, heads, shared, d = 4, 512, 8, 2, 64
	nativetest.Need(b, "cpu", "libhetero_cpu.so")
	dev, err := cpu.Driver{}.Open(0, device.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	for _, compute := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, repeat := range []bool{false, true} {
			b.Run(fmt.Sprintf("%v repeated %t", compute, repeat), func(b *testing.B) {
				g, err := graph.Build(func(g *graph.Graph) {
					param := func(name string, heads int) *graph.Value {
						p := g.Param(name, graph.Normal(1), n, t, heads*d)
						if compute != tensor.F32 {
							p = g.Cast(name, p, compute)
						}
						return p
					}
					q, k, v, op := param("q", heads), param("k", shared), param("v", shared),
						graph.AttentionOp{Heads: heads, KVHeads: shared, Causal: true}
					if repeat {
						k, v, op.KVHeads = repeated(g, "k", k, shared, heads/shared),
							repeated(g, "v", v, shared, heads/shared), 0
					}
					y := g.Attention("attention", op, []*graph.Value{q, k, v}, nil, nil, nil)
					loss, _ := g.LinearCrossEntropy("loss", g.Reshape("rows", y, n*t, heads*d),
						g.Param("w", graph.Normal(1), 2, heads*d), g.Input("labels", tensor.I32, n*t), nil)
					g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
				})
				if err != nil {
					b.Fatal(err)
				}
				cache := plan.NewCache(dev)
				p, err := plan.Compile(cache, g, nil)
				if err != nil {
					b.Fatal(err)
				}
				state, err := plan.NewState(cache, p.Params())
				if err != nil {
					b.Fatal(err)
				}
				stream, err := dev.NewStream()
				if err != nil {
					b.Fatal(err)
				}
				arena, err := dev.Alloc(p.ArenaBytes())
				if err != nil {
					b.Fatal(err)
				}
				if err := errors.Join(p.Bind(device.Whole(arena), state), p.Prepare(stream)); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if err := errors.Join(p.Forward(stream), p.Backward(stream), stream.Sync()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(p.ArenaBytes())/1e6, "MB")
				if err := errors.Join(stream.Close(), p.Close(), arena.Free(), state.Close(),
					cache.Close()); err != nil {
					b.Error(err)
				}
			})
		}
	}
}
