package tokens

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Given are samples whose tokens the caller provides, for predictions. All labels are NoLabel.
//
//	field     shape
//	tokens    (Length)
//	labels    (Length), or () with Class
//	segments  (Length), only with Padded
//	lengths   (), only with Padded
//	next_sentence  (), only with Pairs
type Given struct {
	Texts  []GivenText
	Length int   // number of positions of a sample
	Class  bool  // the target of a sample is its class
	Padded bool  // the model reads segments and lengths
	Pairs  bool  // the model also predicts the next sentence; requires Padded
	Pad    int32 // token of padding
}

// GivenText is a sample of Given. Both slices have the same length, at most Given.Length.
type GivenText struct{ Tokens, Segments []int32 }

// Len implements [data.Samples].
func (g Given) Len() int { return len(g.Texts) }

// Layout implements [data.Samples].
func (g Given) Layout(*data.Options) (data.Layout, error) {
	for i, t := range g.Texts {
		if len(t.Tokens) > g.Length || len(t.Segments) != len(t.Tokens) {
			return data.Layout{},
				fmt.Errorf("given tokens: sample %d has %d tokens and %d segments, want equal numbers, at most %d", i,
					len(t.Tokens), len(t.Segments), g.Length)
		}
	}
	labels := perPosition(Labels, g.Length)
	if g.Class {
		labels = perSample(Labels)
	}
	fields := []data.Field{perPosition(Tokens, g.Length), labels}
	if g.Padded {
		fields = append(fields, perPosition(Segments, g.Length), perSample(Lengths))
	}
	if g.Pairs {
		fields = append(fields, perSample(Next))
	}
	return data.Layout{Fields: fields}, nil
}

// NewSource implements [data.Samples].
func (g Given) NewSource(*data.Options) (data.Source, error) { return givenSource(g), nil }

type givenSource Given

// Close implements [data.Source].
func (givenSource) Close() error { return nil }

// Read implements [data.Source].
func (g givenSource) Read(span *data.Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		t := g.Texts[span.Index[j]]
		put(span.Field(0, j), t.Tokens, g.Pad)
		put(span.Field(1, j), nil, NoLabel)
		if g.Padded {
			put(span.Field(2, j), t.Segments, 0)
			putOne(span.Field(3, j), int32(len(t.Tokens)))
		}
		if g.Pairs {
			putOne(span.Field(4, j), NoLabel)
		}
		errs[j-span.Lo] = nil
	}
}
