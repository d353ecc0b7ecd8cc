// Command text adds a language model and a data set to hetero-train. Texts count modulo 10, with random mistakes.
package main

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/program"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// bigram is a model that predicts the next token from the current token only.
type bigram struct{ program.NoKeys }

// Legend: N samples, T tokens of a sample, C = 16 channels of a token, V tokens of the vocabulary.
func (bigram) BuildLanguage(vocabulary, _ int) (models.Language, error) {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		table := net.Table("table", vocabulary, 16, 0.5)                                           // (V, C)
		h := net.Graph.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute) // (N, T, C)
		return models.Prediction{Rows: net.Rows(net.Projection("hidden", h, 16, 0.5)), Weight: table}
	}, nil
}

// counting is a data set and its samples. Each token is its predecessor plus 1, modulo 10, except for mistakes.
type counting struct{ Length, Mistakes int }

func (c *counting) Keys() []config.Key {
	return []config.Key{
		config.Int(&c.Length, "length", 12).Unit("tokens").AtLeast(1).AtMost(1024).Doc("Tokens of a sample."),
		config.Int(&c.Mistakes, "mistakes", 5).Unit("percent").AtMost(100).Doc("Fraction of random numbers.")}
}

func (c *counting) OpenTokens(context.Context, *config.Config, *slog.Logger) (program.TokenSplits, error) {
	return program.TokenSplits{Train: c, Eval: c, Vocabulary: 10, Length: c.Length}, nil
}

func (c *counting) Len() int { return 512 }
func (c *counting) Layout(*data.Options) (data.Layout, error) {
	shape := []int{c.Length}
	return data.Layout{Fields: []data.Field{{Name: tokens.Tokens, DType: tensor.I32, Shape: shape, PerPosition: true},
		{Name: tokens.Labels, DType: tensor.I32, Shape: shape, Pad: 0xff, PerPosition: true}}}, nil // -1: no label
}
func (c *counting) NewSource(*data.Options) (data.Source, error) { return c, nil }
func (c *counting) Close() error                                 { return nil }
func (c *counting) Read(s *data.Span, errs []error) {
	for j := s.Lo; j < s.Hi; j++ { // a sample depends only on its index
		random := rand.New(rand.NewPCG(0, uint64(s.Index[j])))
		in, labels, next := s.Field(0, j), s.Field(1, j), random.Uint32N(10)
		for at := 0; at < len(in); at += 4 {
			binary.NativeEndian.PutUint32(in[at:], next)
			if next = (next + 1) % 10; random.IntN(100) < c.Mistakes {
				next = random.Uint32N(10)
			}
			binary.NativeEndian.PutUint32(labels[at:], next)
		}
		errs[j-s.Lo] = nil
	}
}

func main() {
	program.Main(program.LanguageModel{Name: "bigram", Doc: "a table of pairs", New: func() program.LanguageOptions {
		return bigram{}
	}},
		program.TokenData{Name: "counting", Doc: "counting", New: func() program.TokenDataOptions {
			return &counting{}
		}, Traits: config.DataTraits{Computed: true}})
}
