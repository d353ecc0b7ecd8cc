// Package modelstest contains language models for tests. They use only the API that models of other modules can use.
package modelstest

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Llama is LlamaForCausalLM of the library transformers: RMSNorm, rotary embedding, grouped-query attention and SwiGLU.
// Its parameters have the names of transformers.
type Llama struct {
	Vocabulary, Positions  int
	Layers, Heads, KVHeads int
	Channels, Inner        int
	Theta, Eps, Std        float64
}

// block appends the layers of one graph. Legend: N samples, T positions, C channels.
type block struct {
	Llama
	*nn.Net
	in       models.Tokens
	cos, sin *graph.Value // (N or 1, T, 1, 2, D/2): D channels of a head
}

// Build returns the model.
func (s Llama) Build(net *nn.Net, in models.Tokens) models.Prediction {
	b := block{Llama: s, Net: net, in: in}
	table := net.Graph.Param("model.embed_tokens.weight", graph.Normal(s.Std), s.Vocabulary, s.Channels)
	x := net.Graph.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute) // (N, T, C)
	cosines, sines := s.angles()
	half := s.Channels / s.Heads / 2
	b.cos = in.At(net, "cos", net.Constant("rotary.cos", cosines, s.Positions, 1, 2, half))
	b.sin = in.At(net, "sin", net.Constant("rotary.sin", sines, s.Positions, 1, 2, half))
	for i := range s.Layers {
		net.NextLayer()
		name := fmt.Sprintf("model.layers.%d", i)
		x = net.Graph.Binary(name+" attention", graph.Add, x,
			b.attention(name+".self_attn", b.norm(name+".input_layernorm", x)))
		x = net.Graph.Binary(name+" mlp", graph.Add, x,
			b.feedForward(name+".mlp", b.norm(name+".post_attention_layernorm", x)))
	}
	net.NextLayer()
	head := net.Graph.Param("lm_head.weight", graph.Normal(s.Std), s.Vocabulary, s.Channels)
	return models.Prediction{Rows: net.Rows(b.norm("model.norm", x)), Weight: head}
}

// angles returns the cosines, and the sines with the signs of both halves of a head, as (positions, 1, 2, D/2).
func (s Llama) angles() (cosines, sines []float64) {
	half := s.Channels / s.Heads / 2
	for at := range s.Positions {
		for _, sign := range []float64{-1, 1} {
			for i := range half {
				angle := float64(at) * math.Pow(s.Theta, -float64(i)/float64(half))
				cosines, sines = append(cosines, math.Cos(angle)), append(sines, sign*math.Sin(angle))
			}
		}
	}
	return cosines, sines
}

// linear is a layer without biases.
func (b block) linear(name string, x *graph.Value, out int) *graph.Value {
	w := b.Graph.Param(name+".weight", graph.Normal(b.Std), out, x.Shape[2])
	return b.Graph.Reshape(name, b.Graph.Linear(name, b.Rows(x), w, nil, tensor.Invalid), x.Shape[0], x.Shape[1], out)
}

// norm divides each row by its root mean square, in the type of parameters.
func (b block) norm(name string, x *graph.Value) *graph.Value {
	g, wide := b.Graph, b.Graph.ParamType()
	if x.DType != wide {
		x = g.Cast(name, x, wide)
	}
	squares := g.Reduce(name, device.Mean, g.Unary(name, device.Square, x), 2)
	squares = g.Binary(name, graph.Add, g.Reshape(name, squares, x.Shape[0], x.Shape[1], 1),
		g.Full(name, wide, b.Eps, 1))
	y := g.Binary(name, device.Div, x, g.Unary(name, device.Sqrt, squares))
	y = g.Binary(name, graph.Mul, y, g.Param(name+".weight", graph.Const(1), b.Channels))
	if wide != b.Compute {
		y = g.Cast(name, y, b.Compute)
	}
	return y
}

// rotated rotates each pair of channels of a head by the angle of the position.
func (b block) rotated(name string, x *graph.Value, heads int) *graph.Value {
	g, shape := b.Graph, x.Shape.Clone()
	x = g.Reshape(name, x, shape[0], shape[1], heads, 2, b.Channels/b.Heads/2)
	swapped := g.Concat(name, 3, g.Slice(name, x, 3, 1, 1), g.Slice(name, x, 3, 0, 1))
	return g.Reshape(name, g.Binary(name, graph.Add, g.Binary(name, graph.Mul, x, b.cos),
		g.Binary(name, graph.Mul, swapped, b.sin)), shape...)
}

func (b block) attention(name string, x *graph.Value) *graph.Value {
	shared := b.Channels / b.Heads * b.KVHeads
	q := b.rotated(name+".q", b.linear(name+".q_proj", x, b.Channels), b.Heads)
	k := b.rotated(name+".k", b.linear(name+".k_proj", x, shared), b.KVHeads)
	v := b.linear(name+".v_proj", x, shared)
	a := b.Attention(name, nn.Attention{Heads: b.Heads, KVHeads: b.KVHeads, Causal: true, Lengths: b.in.Lengths}, q, k,
		v)
	return b.linear(name+".o_proj", a, b.Channels)
}

func (b block) feedForward(name string, x *graph.Value) *graph.Value {
	g, gate := b.Graph, b.linear(name+".gate_proj", x, b.Inner)
	gate = g.Binary(name+" silu", graph.Mul, gate, g.Unary(name+" sigmoid", device.Sigmoid, gate))
	return b.linear(name+".down_proj", g.Binary(name, graph.Mul, gate, b.linear(name+".up_proj", x, b.Inner)),
		b.Channels)
}
