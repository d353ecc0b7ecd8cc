package tokens

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// MaskedOptions configures samples for BERT's pre-training.
type MaskedOptions struct {
	Corpus   *Corpus // tokens of WordPiece; each document ends with [SEP]
	Length   int     // number of positions of a sample, including special tokens
	Specials tokenizer.Specials
	// SentenceEnds are the tokens after which a sentence ends, usually those of ".", "!" and "?".
	SentenceEnds []int32
	// NextSentence generates pairs of texts. In half of the pairs, the second text comes from another document.
	NextSentence bool
	MaskFraction float64 // fraction of the ordinary tokens that the model must predict; 0 means 0.15
}

// Masked provides the samples of BERT's pre-training. A sample contains as many whole sentences of one document as
// fit:
//
//	[CLS] text [SEP]             without NextSentence
//	[CLS] text [SEP] text [SEP]  with NextSentence
//
// With NextSentence, the second text follows the first one, or comes from another document. A sentence that is longer
// than a sample is split. A fraction MaskFraction of the ordinary tokens gets labels, at least one token. Of these
// tokens, 80 % become [MASK], 10 % become a random token, and 10 % remain unchanged. Masks and second texts depend on
// the seed, the epoch and the sample.
//
//	field          shape
//	tokens         (Length)
//	labels         (Length)
//	segments       (Length)
//	lengths        ()
//	next_sentence  (), only with NextSentence
type Masked struct {
	o     MaskedOptions
	spans []textSpan
	ends  map[int32]bool
}

// textSpan is the range of the corpus that contains the text of a sample.
type textSpan struct {
	at       int64 // position of the first token in the corpus
	length   int32 // number of tokens
	document int32
}

// NewMasked reads the whole corpus to find documents and sentences. It needs 16 bytes of memory per sample.
func NewMasked(ctx context.Context, o MaskedOptions) (*Masked, error) {
	if o.MaskFraction == 0 {
		o.MaskFraction = usualMaskFraction
	}
	m := &Masked{o: o, ends: map[int32]bool{}}
	for _, t := range o.SentenceEnds {
		m.ends[t] = true
	}
	if err := errors.Join(m.check(), checkLength("masked samples", o.Length, m.specials()+2)); err != nil {
		return nil, err
	}
	if err := m.scan(ctx); err != nil {
		return nil, err
	}
	if len(m.spans) == 0 {
		return nil,
			fault("read tokens", o.Corpus.Shards[0].Path, "", errors.New("no document has enough text for a sample"))
	}
	if o.NextSentence && m.spans[0].document == m.spans[len(m.spans)-1].document {
		return nil, fault("read tokens", o.Corpus.Shards[0].Path,
			"tokenize the text with --separator, or train without next-sentence prediction",
			errors.New("next sentences need at least two documents"))
	}
	return m, nil
}

func (m *Masked) check() error {
	o := &m.o
	var errs []error
	if o.Corpus == nil {
		return errors.New("masked samples: no corpus")
	}
	if end := o.Corpus.EndOfText(); end != o.Specials.Separator {
		errs = append(errs, fmt.Errorf("masked samples: documents end with token %d, want token %d ([SEP]): tokenize the text with --tokenizer wordpiece",
			end, o.Specials.Separator))
	}
	if !(o.MaskFraction > 0 && o.MaskFraction <= 1) {
		errs = append(errs, fmt.Errorf("masked samples: fraction of masks is %v, want above 0, at most 1",
			o.MaskFraction))
	}
	if v := o.Corpus.Shards[0].Vocabulary; v == 0 || int(max(o.Specials.Mask, o.Specials.Class, o.Specials.Pad)) >= v {
		errs = append(errs, fmt.Errorf("masked samples: vocabulary of %d tokens without the special tokens %+v", v,
			o.Specials))
	}
	return errors.Join(errs...)
}

// specials returns the number of special tokens in a sample.
func (m *Masked) specials() int {
	if m.o.NextSentence {
		return 3
	}
	return 2
}

// scan divides the corpus into spans.
func (m *Masked) scan(ctx context.Context) error {
	capacity := int64(m.o.Length - m.specials())
	least := int64(1)
	if m.o.NextSentence {
		least = 2 // one token for each of the two texts
	}
	var begin, whole int64 // start of the current span; end of the last whole sentence in this span
	document := int32(0)
	add := func(end int64) {
		if end-begin >= least {
			m.spans = append(m.spans, textSpan{begin, int32(end - begin), document})
		}
		begin, whole = end, end
	}
	block := make([]int32, 1<<16)
	for at := int64(0); at < m.o.Corpus.Len(); at += int64(len(block)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		block = block[:min(int64(len(block)), m.o.Corpus.Len()-at)]
		if err := m.o.Corpus.Read(at, block); err != nil {
			return err
		}
		for i, t := range block {
			here := at + int64(i) // position of t
			if t == m.o.Specials.Separator {
				add(here)
				begin, whole = here+1, here+1
				if document == math.MaxInt32 {
					return fmt.Errorf("masked samples: more than %d documents", math.MaxInt32)
				}
				document++
				continue
			}
			if here-begin == capacity { // t does not fit
				if whole > begin {
					add(whole)
				} else {
					add(here)
				}
			}
			if m.ends[t] {
				whole = here + 1
			}
		}
	}
	add(m.o.Corpus.Len())
	return nil
}

// Len implements [data.Samples].
func (m *Masked) Len() int { return len(m.spans) }

// Length returns the number of positions of sample i without padding. With NextSentence, it returns an upper bound,
// because a second text from another document may be shorter.
func (m *Masked) Length(i int) int {
	if m.o.NextSentence {
		return m.o.Length
	}
	return int(m.spans[i].length) + m.specials()
}

// Counted returns the expected fraction of positions with a label. It counts all positions of all samples, including
// padding.
func (m *Masked) Counted() float64 {
	sum := 0
	tokens, capacity := 0, m.o.Length-m.specials()
	for _, span := range m.spans {
		tokens += int(span.length)
	}
	for _, span := range m.spans {
		n := int(span.length)
		if m.o.NextSentence { // half of the second texts are spans of other documents
			n = (n + min(n/2+tokens/len(m.spans), capacity)) / 2
		}
		sum += countMasks(n, m.o.MaskFraction)
	}
	return float64(sum) / float64(len(m.spans)) / float64(m.o.Length)
}

func (m *Masked) masking() masking {
	return masking{specials: m.o.Specials, vocabulary: m.o.Corpus.Shards[0].Vocabulary, fraction: m.o.MaskFraction,
		places: make([]int32, m.o.Length)}
}

// Layout implements [data.Samples].
func (m *Masked) Layout(*data.Options) (data.Layout, error) {
	fields := []data.Field{perPosition(Tokens, m.o.Length), perPosition(Labels, m.o.Length),
		perPosition(Segments, m.o.Length), perSample(Lengths)}
	if m.o.NextSentence {
		fields = append(fields, perSample(Next))
	}
	return data.Layout{Fields: fields}, nil
}

// NewSource implements [data.Samples].
func (m *Masked) NewSource(o *data.Options) (data.Source, error) {
	n := m.o.Length
	source := &maskedSource{Masked: m, seed: o.Seed, tokens: make([]int32, n), labels: make([]int32, n),
		segments: make([]int32, n),
		text:     make([]int32, n), ends: make([]int32, n), masking: m.masking()}
	if m.o.NextSentence {
		return pairSource{source}, nil
	}
	return source, nil
}

// pairSource is the source of samples with two losses. One loss is divided by the number of labels, the other by the
// number of samples. Training therefore needs the number of labels before a step.
type pairSource struct{ *maskedSource }

// CountLabels implements [data.LabelCounter].
func (s pairSource) CountLabels(epoch, index int) (n int, err error) {
	if _, err := s.fill(epoch, index); err != nil {
		return 0, err
	}
	for _, label := range s.labels[:s.n] {
		if label != NoLabel {
			n++
		}
	}
	return n, nil
}

type maskedSource struct {
	*Masked
	seed     uint64
	tokens   []int32 // (Length)
	labels   []int32 // (Length)
	segments []int32 // (Length)
	n        int     // number of positions filled so far
	text     []int32 // buffer for the text of a span
	ends     []int32 // positions at which a second text may begin
	masking
}

// Close implements [data.Source].
func (s *maskedSource) Close() error { return nil }

// Read implements [data.Source].
func (s *maskedSource) Read(span *data.Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		next, err := s.fill(span.Epoch, int(span.Index[j]))
		errs[j-span.Lo] = err
		if err != nil {
			continue
		}
		put(span.Field(0, j), s.tokens[:s.n], s.o.Specials.Pad)
		put(span.Field(1, j), s.labels[:s.n], NoLabel)
		put(span.Field(2, j), s.segments[:s.n], 0)
		putOne(span.Field(3, j), int32(s.n))
		if s.o.NextSentence {
			putOne(span.Field(4, j), next)
		}
	}
}

// fill computes a sample. The result next is its next-sentence label.
func (s *maskedSource) fill(epoch, index int) (next int32, err error) {
	r := data.NewRandom(s.seed, epoch, index, data.ForMasks)
	here := s.spans[index]
	text := s.text[:here.length]
	if err := s.o.Corpus.Read(here.at, text); err != nil {
		return 0, err
	}
	s.n = 0
	s.special(s.o.Specials.Class, 0)
	if !s.o.NextSentence {
		s.add(text, 0)
		s.special(s.o.Specials.Separator, 0)
		s.mask(&r, s.tokens[:s.n], s.labels)
		return 0, nil
	}
	middle := s.middle(text, &r)
	s.add(text[:middle], 0)
	s.special(s.o.Specials.Separator, 0)
	second := text[middle:]
	if r.Below(2) == 1 {
		next = 1
		if second, err = s.other(here.document, &r); err != nil {
			return 0, err
		}
	}
	s.add(second[:min(len(second), len(s.tokens)-s.n-1)], 1)
	s.special(s.o.Specials.Separator, 1)
	s.mask(&r, s.tokens[:s.n], s.labels)
	return next, nil
}

// middle chooses the first token of the second text. If the text contains a sentence end, the second text starts after
// a sentence end.
func (s *maskedSource) middle(text []int32, r *data.Random) int {
	ends := s.ends[:0]
	for i, t := range text[:len(text)-1] {
		if s.Masked.ends[t] {
			ends = append(ends, int32(i+1))
		}
	}
	if len(ends) == 0 {
		return 1 + r.Below(len(text)-1)
	}
	return int(ends[r.Below(len(ends))])
}

// other returns the text of a random span that belongs to another document.
func (s *maskedSource) other(document int32, r *data.Random) ([]int32, error) {
	k := r.Below(len(s.spans))
	if s.spans[k].document == document { // take the first span of the next document
		k = sort.Search(len(s.spans), func(i int) bool { return s.spans[i].document > document }) % len(s.spans)
	}
	text := s.text[:s.spans[k].length]
	return text, s.o.Corpus.Read(s.spans[k].at, text)
}

func (s *maskedSource) special(token, segment int32) {
	s.tokens[s.n], s.labels[s.n], s.segments[s.n] = token, NoLabel, segment
	s.n++
}

func (s *maskedSource) add(text []int32, segment int32) {
	for _, t := range text {
		s.special(t, segment)
	}
}
