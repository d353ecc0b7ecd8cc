package tokens

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// markovSpecials contains the first tokens in the vocabulary of MaskedMarkov. There is no unknown token.
var markovSpecials = tokenizer.Specials{Pad: 0, Unknown: 0, Class: 1, Separator: 2, Mask: 3}

const markovSpecialCount = 4

// MaskedMarkov provides samples of BERT's pre-training from a Markov source:
//
//	[CLS] tokens of the chain [SEP]
//
// The first four tokens of the vocabulary are [PAD], [CLS], [SEP] and [MASK]. All other tokens belong to the chain.
// Tokens are masked as in [Masked].
//
//	field     shape
//	tokens    (Length)
//	labels    (Length)
//	segments  (Length)
//	lengths   ()
type MaskedMarkov struct {
	chain    *Markov // source of the texts, without special tokens
	length   int
	vocab    int
	fraction float64
}

// NewMaskedMarkov returns the samples. o.Vocabulary, o.Length and o.Shortest include the special tokens. The parameter
// fraction is the fraction of the chain's tokens that the model must predict; 0 means 0.15.
func NewMaskedMarkov(o MarkovOptions, fraction float64) (*MaskedMarkov, error) {
	if fraction == 0 {
		fraction = usualMaskFraction
	}
	if !(fraction > 0 && fraction <= 1) {
		return nil, fmt.Errorf("masked Markov source: fraction of masks is %v, want above 0, at most 1", fraction)
	}
	if o.Vocabulary < markovSpecialCount+2 {
		return nil,
			fmt.Errorf(
				"masked Markov source: vocabulary of %d tokens, want at least %d, of which %d are special tokens",
				o.Vocabulary, markovSpecialCount+2, markovSpecialCount)
	}
	if o.Length < 3 || o.Shortest != 0 && o.Shortest < 3 {
		return nil,
			fmt.Errorf("masked Markov source: samples of %d positions, want at least 3, of which 2 are special tokens",
				least(o))
	}
	m := &MaskedMarkov{length: o.Length, vocab: o.Vocabulary, fraction: fraction}
	o.Vocabulary -= markovSpecialCount
	o.Length -= 2
	if o.Shortest != 0 {
		o.Shortest -= 2
	}
	var err error
	m.chain, err = NewMarkov(o)
	return m, err
}

// Entropy returns the entropy of a token of the chain, given the previous token, in nats.
func (m *MaskedMarkov) Entropy() float64 { return m.chain.Entropy() }

// Len implements [data.Samples].
func (m *MaskedMarkov) Len() int { return m.chain.Len() }

// Length returns the number of positions of sample i without padding.
func (m *MaskedMarkov) Length(i int) int { return m.chain.Length(i) + 2 }

// Counted returns the expected fraction of positions with a label. It counts all positions of all samples, including
// padding.
func (m *MaskedMarkov) Counted() float64 {
	sum, kinds := 0, 0
	for n := least(m.chain.o); n <= m.chain.o.Length; n++ { // all lengths are equally likely
		sum += countMasks(n, m.fraction)
		kinds++
	}
	return float64(sum) / float64(kinds) / float64(m.length)
}

// Layout implements [data.Samples].
func (m *MaskedMarkov) Layout(*data.Options) (data.Layout, error) {
	return data.Layout{Fields: []data.Field{perPosition(Tokens, m.length), perPosition(Labels, m.length),
		perPosition(Segments, m.length), perSample(Lengths)}}, nil
}

// NewSource implements [data.Samples].
func (m *MaskedMarkov) NewSource(o *data.Options) (data.Source, error) {
	return &maskedMarkovSource{chain: markovSource{m.chain, make([]int32, m.chain.o.Length+1)}, seed: o.Seed,
		tokens: make([]int32, m.length), labels: make([]int32, m.length),
		masking: masking{specials: markovSpecials, vocabulary: m.vocab, fraction: m.fraction,
			places: make([]int32, m.length)}}, nil
}

type maskedMarkovSource struct {
	chain          markovSource
	seed           uint64
	tokens, labels []int32
	masking
}

// Close implements [data.Source].
func (s *maskedMarkovSource) Close() error { return nil }

// Read implements [data.Source].
func (s *maskedMarkovSource) Read(span *data.Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		text := s.chain.fill(int(span.Index[j]))
		// fill also returns the label of the last token
		tokens, labels := s.tokens[:len(text)+1], s.labels[:len(text)+1]
		tokens[0], tokens[len(text)] = markovSpecials.Class, markovSpecials.Separator
		for i, t := range text[:len(text)-1] {
			tokens[i+1] = t + markovSpecialCount
		}
		for i := range labels {
			labels[i] = NoLabel
		}
		r := data.NewRandom(s.seed, span.Epoch, int(span.Index[j]), data.ForMasks)
		s.mask(&r, tokens, labels)
		put(span.Field(0, j), tokens, markovSpecials.Pad)
		put(span.Field(1, j), labels, NoLabel)
		put(span.Field(2, j), nil, 0)
		putOne(span.Field(3, j), int32(len(tokens)))
		errs[j-span.Lo] = nil
	}
}
