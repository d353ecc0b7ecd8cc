package tokens

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

var special = tokenizer.Specials{Pad: 0, Unknown: 1, Class: 2, Separator: 3, Mask: 4}

const fullStop = 5

// documents returns n documents of sentences. The first token of document d is 100 + d. Every other word is 1000 plus
// its position in the corpus.
func documents(n int) (tokens []int32) {
	for d := range n {
		tokens = append(tokens, int32(100+d))
		for sentence := range 1 + d%9 {
			for range 2 + (d*7+sentence*5)%11 {
				tokens = append(tokens, int32(1000+len(tokens)))
			}
			tokens = append(tokens, fullStop)
		}
		tokens = append(tokens, special.Separator)
	}
	return tokens
}

func maskedCorpus(t testing.TB) (*Corpus, []int32) {
	tokens := documents(60)
	return corpus(t, Header{Tokenizer: "wordpiece", Vocabulary: 10_000, EndOfText: special.Separator}, tokens, 3),
		tokens
}

func masked(t testing.TB, pairs bool) *Masked {
	t.Helper()
	c, _ := maskedCorpus(t)
	m, err := NewMasked(t.Context(),
		MaskedOptions{Corpus: c, Length: 16, Specials: special, SentenceEnds: []int32{fullStop}, NextSentence: pairs})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// original returns the tokens of a sample before masking.
func original(s sample) []int32 {
	tokens := slices.Clone(s.values[Tokens])
	for i, y := range s.values[Labels] {
		if y != NoLabel {
			tokens[i] = y
		}
	}
	return tokens[:s.values[Lengths][0]]
}

func TestMaskedSamplesAreWholeSentencesOfOneDocument(t *testing.T) {
	m := masked(t, false)
	_, all := maskedCorpus(t)
	var text []int32
	for _, s := range load(t, m, data.Options{BatchSize: 10, Evaluate: true}, m.Len()) {
		n := int(s.values[Lengths][0])
		tokens := original(s)
		if tokens[0] != special.Class || tokens[n-1] != special.Separator || n != m.Length(int(s.id)) || n > 16 {
			t.Fatalf("sample %d: %v, length %d", s.id, tokens, m.Length(int(s.id)))
		}
		for i := n; i < 16; i++ {
			if s.values[Tokens][i] != special.Pad || s.values[Labels][i] != NoLabel {
				t.Fatalf("sample %d: no padding at %d: %v", s.id, i, s.values)
			}
		}
		if slices.Max(s.values[Segments]) != 0 {
			t.Errorf("segments %v", s.values[Segments])
		}
		body := tokens[1 : n-1]
		if slices.Contains(body, special.Separator) {
			t.Errorf("sample %d has tokens of two documents: %v", s.id, body)
		}
		if body[len(body)-1] != fullStop && len(body) < 14 {
			t.Errorf("sample %d ends within a sentence: %v", s.id, body)
		}
		text = append(text, body...)
	}
	want := slices.DeleteFunc(slices.Clone(all), func(t int32) bool { return t == special.Separator })
	if !slices.Equal(text, want) {
		t.Errorf("%d tokens in samples, want %d", len(text), len(want))
	}
}

// The test tolerates five standard deviations of a binomial distribution for each count.
func TestMasks(t *testing.T) {
	m := masked(t, false)
	var labels, masks, kept, random, places float64
	first := ""
	for _, s := range load(t, m, data.Options{BatchSize: 10, Seed: 1}, 10*m.Len()/10) {
		here := 0
		for i, y := range s.values[Labels] {
			switch x := s.values[Tokens][i]; {
			case y == NoLabel:
				continue
			case y == special.Class || y == special.Separator || i >= int(s.values[Lengths][0]):
				t.Fatalf("position %d of %v is a label", i, s.values)
			case x == special.Mask:
				masks++
			case x == y:
				kept++
			default:
				random++
			}
			here++
		}
		n := int(s.values[Lengths][0]) - 2
		if want := max(int(0.15*float64(n)+0.5), 1); here != want {
			t.Fatalf("%d labels of %d tokens, want %d", here, n, want)
		}
		labels, places = labels+float64(here), places+float64(n)
		if s.id == 0 { // each epoch contains sample 0 once
			if first == fmt.Sprint(s.values[Labels]) && m.Length(0) > 8 {
				t.Error("two epochs have the same masks")
			}
			first = fmt.Sprint(s.values[Labels])
		}
	}
	for _, c := range []struct {
		name    string
		n, want float64
	}{{"masks", masks, 0.8}, {"random", random, 0.1}, {"kept", kept, 0.1}} {
		if math.Abs(c.n-c.want*labels) > 5*math.Sqrt(labels*c.want*(1-c.want)) {
			t.Errorf("%s: %v of %v labels, want %v", c.name, c.n, labels, c.want)
		}
	}
}

func maskedMarkov(t testing.TB, shortest int) *MaskedMarkov {
	t.Helper()
	m, err := NewMaskedMarkov(MarkovOptions{Seed: 3, Vocabulary: 54, Entropy: 1, Length: 16, Shortest: shortest,
		Samples: 96}, 0)
	must(t, err)
	return m
}

func TestMaskedMarkovTextIsThatOfTheChain(t *testing.T) {
	for _, shortest := range []int{0, 3, 16} {
		m, lengths, labels := maskedMarkov(t, shortest), map[int]bool{}, 0
		chain := load(t, m.chain, data.Options{BatchSize: 16, Evaluate: true}, 6)
		for i, s := range load(t, m, data.Options{BatchSize: 16, Evaluate: true}, 6) {
			n := int(s.values[Lengths][0])
			lengths[n] = true
			got, want := original(s), []int32{markovSpecials.Class}
			for _, token := range chain[i].values[Tokens][:n-2] {
				want = append(want, token+markovSpecialCount)
			}
			if want = append(want, markovSpecials.Separator); n != m.Length(int(s.id)) || !slices.Equal(got, want) {
				t.Fatalf("sample %d: got %v, want %v", s.id, got, want)
			}
			for k, y := range s.values[Labels] {
				if y == NoLabel {
					continue
				}
				if labels++; k < 1 || k >= n-1 {
					t.Fatalf("sample %d: label at %d of %d", s.id, k, n)
				}
			}
			if slices.Max(s.values[Tokens][n-1:]) != markovSpecials.Separator || slices.Max(s.values[Segments]) != 0 {
				t.Fatalf("sample %d: padding %v, segments %v", s.id, s.values[Tokens][n:], s.values[Segments])
			}
		}
		if even := shortest == 0 || shortest == 16; even != (len(lengths) == 1) || !even && len(lengths) < 10 {
			t.Errorf("shortest %d: lengths %v", shortest, lengths)
		}
		// The mean over 96 samples of random lengths is within 20 % of the expected number of labels.
		if got, want := float64(labels)/(96*16), m.Counted(); math.Abs(got-want) > 0.2*want {
			t.Errorf("shortest %d: %v of the positions have a label, Counted is %v", shortest, got, want)
		}
	}
}

func TestCountedIsTheFractionOfLabels(t *testing.T) {
	m, labels := masked(t, false), 0
	for _, s := range load(t, m, data.Options{BatchSize: 1, Evaluate: true}, m.Len()) {
		for _, y := range s.values[Labels] {
			if y != NoLabel {
				labels++
			}
		}
	}
	if got, want := m.Counted(), float64(labels)/float64(16*m.Len()); math.Abs(got-want) > 1e-12 {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMaskedMarkovOptionsThatAreRefused(t *testing.T) {
	good := MarkovOptions{Vocabulary: 10, Entropy: 1, Length: 4, Samples: 3}
	for want, change := range map[string]func(*MarkovOptions, *float64){
		"vocabulary of 5":          func(o *MarkovOptions, _ *float64) { o.Vocabulary = 5 },
		"at most 1.7918":           func(o *MarkovOptions, _ *float64) { o.Entropy = 1.8 },
		"samples of 2 positions":   func(o *MarkovOptions, _ *float64) { o.Length = 2 },
		"samples of 1 positions":   func(o *MarkovOptions, _ *float64) { o.Shortest = 1 },
		"shortest sample: got 3":   func(o *MarkovOptions, _ *float64) { o.Shortest = 5 },
		"fraction of masks is 1.5": func(_ *MarkovOptions, f *float64) { *f = 1.5 },
	} {
		o, fraction := good, 0.15
		change(&o, &fraction)
		if _, err := NewMaskedMarkov(o, fraction); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNextSentences(t *testing.T) {
	m := masked(t, true)
	_, all := maskedCorpus(t)
	at := map[int32]int{} // position of each word
	document := map[int32]int{}
	d := 0
	for i, token := range all {
		if token >= 100 {
			at[token], document[token] = i, d
		}
		if token == special.Separator {
			d++
		}
	}
	// one returns a word of the text that occurs only once in the corpus.
	one := func(text []int32) int32 {
		for _, token := range text {
			if token >= 100 {
				return token
			}
		}
		return -1
	}
	follows, strange := 0, 0
	samples := load(t, m, data.Options{BatchSize: 10, Seed: 1}, m.Len())
	for _, s := range samples {
		tokens := original(s)
		middle := slices.Index(tokens, special.Separator)
		first, second := tokens[1:middle], tokens[middle+1:len(tokens)-1]
		if tokens[len(tokens)-1] != special.Separator || len(first) == 0 || len(second) == 0 {
			t.Fatalf("sample %d: %v", s.id, tokens)
		}
		for i, segment := range s.values[Segments] {
			if want := i > middle && i < len(tokens); (segment == 1) != want {
				t.Fatalf("segments %v of %v", s.values[Segments], tokens)
			}
		}
		a, b := one(first), one(second)
		if a < 0 || b < 0 {
			continue // one of the texts has only full stops
		}
		switch s.values[Next][0] {
		case 0:
			follows++
			begin := at[a] - slices.Index(first, a)
			if !slices.Equal(slices.Concat(first, second), all[begin:begin+len(first)+len(second)]) {
				t.Fatalf("sample %d: the second text does not follow: %v", s.id, tokens)
			}
		case 1:
			strange++
			if document[a] == document[b] {
				t.Fatalf("sample %d: both texts are of document %d", s.id, document[a])
			}
		}
	}
	if n := float64(follows + strange); math.Abs(float64(follows)-n/2) > 5*math.Sqrt(n)/2 ||
		n < 0.8*float64(len(samples)) {
		t.Errorf("%d follow, %d are random", follows, strange)
	}
}

func TestMaskedOptionsThatAreRefused(t *testing.T) {
	c, _ := maskedCorpus(t)
	good := MaskedOptions{Corpus: c, Length: 16, Specials: special}
	single := corpus(t, Header{Tokenizer: "wordpiece", Vocabulary: 10_000, EndOfText: special.Separator},
		count(100, 3)[1:], 1)
	for want, change := range map[string]func(*MaskedOptions){
		"4 positions, want 5":         func(o *MaskedOptions) { o.Length, o.NextSentence = 4, true },
		"fraction of masks is 2":      func(o *MaskedOptions) { o.MaskFraction = 2 },
		"documents end with token 3":  func(o *MaskedOptions) { o.Specials.Separator = 7 },
		"no corpus":                   func(o *MaskedOptions) { o.Corpus = nil },
		"at least two documents":      func(o *MaskedOptions) { o.Corpus, o.NextSentence = single, true },
		"without the special tokens ": func(o *MaskedOptions) { o.Specials.Mask = 10_000 },
	} {
		o := good
		change(&o)
		if _, err := NewMasked(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
}
