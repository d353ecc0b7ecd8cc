package generate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/modelstest"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var llama = modelstest.Llama{Vocabulary: size.Vocabulary, Positions: size.Positions, Layers: 2, Heads: 4, KVHeads: 2,
	Channels: 32, Inner: 48, Theta: 100, Eps: 1e-5, Std: 1}

// A model with rotary embedding and grouped-query attention must use the cache. It must generate the same tokens as
// without the cache.
func TestAnOwnModelUsesTheCache(t *testing.T) {
	cpus := openCPU(t)
	for _, dev := range []device.Device{reference.New(), cpus} {
		t.Run(dev.Info().Kind, func(t *testing.T) {
			o := Options{Model: llama.Build, Compute: tensor.F32, Own: true}
			m, whole := fill(t, dev, o), fill(t, lacking{dev}, o)
			sameTokens(t, m, whole)
			if m.whole || !whole.whole || m.proved != size.Positions || whole.proved != size.Positions {
				t.Errorf("got whole %t, proved for %d tokens; without the op of the cache: whole %t, %d tokens",
					m.whole, m.proved, whole.whole, whole.proved)
			}
		})
	}
	t.Run("cpu bf16", func(t *testing.T) {
		m := fill(t, cpus, Options{Model: llama.Build, Compute: tensor.BF16, Own: true})
		for text := []int32{7}; len(text) < 9; text = append(text, int32(5*len(text))) {
			if _, err := m.Next(text); err != nil {
				t.Fatal(err)
			}
		}
		if m.whole || m.proved != 9 {
			t.Errorf("got whole %t, proved for %d tokens, want the cache and 9", m.whole, m.proved)
		}
	})
}

// With the cache, these models would generate other tokens, so Next must not use it.
func TestAnOwnModelThatTheCacheChangesWorksWithoutIt(t *testing.T) {
	change := func(f func(net *nn.Net, in *models.Tokens)) models.Language {
		return func(net *nn.Net, in models.Tokens) models.Prediction {
			f(net, &in)
			return llama.Build(net, in)
		}
	}
	for name, c := range map[string]struct {
		model models.Language
		says  string
	}{
		"positions that it does not read": {change(func(_ *nn.Net, in *models.Tokens) { in.Positions = nil }),
			"does not read Tokens.Positions"},
		"positions that are wrong": {
			change(wrongPositions), "keys and values of earlier tokens change a score by"},
		"positions that are wrong, and 1000 added to all logits": {
			func(net *nn.Net, in models.Tokens) models.Prediction {
				wrongPositions(net, &in)
				p := llama.Build(net, in)
				p.Bias = net.Graph.Full("offset", net.Graph.ParamType(), 1000, size.Vocabulary)
				return p
			}, "keys and values of earlier tokens change a score by"},
		"attention within blocks": {blocks(true),
			"the keys and values of a text have the shape (4, 8, 32), want one row for each of 32 tokens"},
		"tokens that it mixes outside of attention": {func(net *nn.Net, in models.Tokens) models.Prediction {
			p := llama.Build(net, in)
			g, rows := net.Graph, p.Rows.Shape[0]
			if rows > 1 { // adds to each row the row before it
				before := g.Slice("before", p.Rows, 0, 0, rows-1)
				p.Rows = g.Binary("mixed", graph.Add, p.Rows,
					g.Concat("shifted", 0, g.Slice("first", p.Rows, 0, 0, 1), before))
			}
			return p
		}, "keys and values of earlier tokens change a score by"},
		"tokens that it mixes with the twentieth before": {func(net *nn.Net, in models.Tokens) models.Prediction {
			p := llama.Build(net, in)
			g, rows := net.Graph, p.Rows.Shape[0]
			if rows > 20 {
				p.Rows = g.Binary("mixed", graph.Add, p.Rows, g.Concat("shifted", 0, g.Slice("first", p.Rows, 0, 0, 20),
					g.Slice("before", p.Rows, 0, 0, rows-20)))
			} else { // doubles the first rows
				p.Rows = g.Binary("mixed", graph.Add, p.Rows, p.Rows)
			}
			return p
		}, "keys and values of earlier tokens change a score by"},
		"a pass of one token that fails": {func(net *nn.Net, in models.Tokens) models.Prediction {
			net.Graph.Slice("second token", in.Tokens, 1, 1, 1)
			return llama.Build(net, in)
		}, "the pass of one token fails"},
		"no attention layer": {func(net *nn.Net, in models.Tokens) models.Prediction {
			table := net.Table("table", size.Vocabulary, 8, 1)
			return models.Prediction{
				Rows:   net.Rows(net.Graph.Embedding("e", in.Tokens, graph.Tables{Weight: table}, net.Compute)),
				Weight: table}
		}, "no layer Net.Attention"},
	} {
		t.Run(name, func(t *testing.T) {
			var warned []string
			o := Options{Model: c.model, Compute: tensor.F32, Own: true}
			whole := fill(t, lacking{reference.New()}, o)
			o.Warn = func(reason string) { warned = append(warned, reason) }
			m := fill(t, reference.New(), o)
			for text := []int32{7}; len(text) <= size.Positions; text = append(text,
				int32(5*len(text)%size.Vocabulary)) {
				got, err := m.Next(text)
				if err != nil {
					t.Fatal(err)
				}
				want, err := whole.Next(text)
				if err != nil {
					t.Fatal(err)
				}
				if why := differ(want, got, 1e-5); why != "" { // sums in another order
					t.Fatalf("%d tokens: the cache and the whole text %s", len(text), why)
				}
			}
			if len(warned) != 1 || !strings.Contains(warned[0], c.says) || !m.whole {
				t.Errorf("got warnings %q, whole %t, want %q", warned, m.whole, c.says)
			}
		})
	}
}

// wrongPositions sets the position of each token after the cache to 0.
func wrongPositions(net *nn.Net, in *models.Tokens) {
	if in.Positions != nil {
		in.Positions = net.Graph.Slice("wrong", net.Graph.Concat("zero first", 0, net.Graph.Zeros("zero", 1, 1),
			in.Positions), 0, 0, 1)
	}
}

// blocks is a model with attention within blocks of 8 tokens.
func blocks(causal bool) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		const c = 32
		g := net.Graph
		table := net.Table("table", size.Vocabulary, c, 1)
		x := g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute) // (N, T, C)
		x = g.Binary("positions", graph.Add, x, in.At(net, "at", net.Table("of positions", size.Positions, c, 1)))
		n, t := x.Shape[0], x.Shape[1]
		length := min(8, t)
		x = g.Reshape("blocks", x, n*t/length, length, c)
		x = net.Attention("attention", nn.Attention{Heads: 2, Causal: causal}, net.Projection("q", x, c, 0.5),
			net.Projection("k", x, c, 0.5), net.Projection("v", x, c, 0.5))
		return models.Prediction{Rows: net.Rows(g.Reshape("text", x, n, t, c)), Weight: table}
	}
}

func TestAnOwnModelThatReadsAheadIsRefused(t *testing.T) {
	for name, model := range map[string]models.Language{
		"the next token": func(net *nn.Net, in models.Tokens) models.Prediction {
			p := llama.Build(net, in)
			if g, rows := net.Graph, p.Rows.Shape[0]; rows > 1 { // adds to each row the row after it
				p.Rows = g.Binary("mixed", graph.Add, p.Rows, g.Concat("shifted", 0,
					g.Slice("after", p.Rows, 0, 1, rows-1), g.Slice("last", p.Rows, 0, rows-1, 1)))
			}
			return p
		},
		"blocks": blocks(false),
	} {
		for _, prompt := range []int{1, 3, 8, 16} {
			m := fill(t, reference.New(), Options{Compute: tensor.F32, Own: true, Model: model})
			if _, err := m.Next(make([]int32, prompt)); !errors.Is(err, ErrNotCausal) {
				t.Errorf("%s, prompt of %d tokens: got %v, want ErrNotCausal", name, prompt, err)
			}
		}
	}
}

// BenchmarkOwnModel times the generation of one token after 200 others. It compares a model with and without the cache.
func BenchmarkOwnModel(b *testing.B) {
	cpus := openCPU(b)
	model := modelstest.Llama{Vocabulary: 5000, Positions: 1024, Layers: 6, Heads: 6, KVHeads: 2, Channels: 384,
		Inner: 1024, Theta: 10000, Eps: 1e-5, Std: 0.02}
	for _, dev := range []device.Device{cpus, lacking{cpus}} {
		_, whole := dev.(lacking)
		b.Run(fmt.Sprintf("whole text %t", whole), func(b *testing.B) {
			m, err := Open(dev, Options{Model: model.Build, Vocabulary: model.Vocabulary, Positions: model.Positions,
				Compute: tensor.F32, Own: true})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			text := make([]int32, 200)
			if _, err := m.Next(text); err != nil {
				b.Fatal(err)
			}
			text = append(text, 1)
			for b.Loop() {
				if _, err := m.Next(text); err != nil {
					b.Fatal(err)
				}
				if text = append(text, 1); len(text) > 250 { // again, so that all passes have about one length
					b.StopTimer()
					text = text[:200]
					if _, err := m.Next(text); err != nil {
						b.Fatal(err)
					}
					text = append(text, 1)
					b.StartTimer()
				}
			}
			if m.whole != whole {
				b.Errorf("whole text %t", m.whole)
			}
		})
	}
}
