package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// sample is one sample that a loader returned.
type sample struct {
	id     int64
	values map[string][]int32
}

// load reads batches of n samples, divided among ranks according to shares, and returns the samples in order.
func load(t testing.TB, s data.Samples, o data.Options, batches int, shares ...data.Share) []sample {
	t.Helper()
	o.Samples = s
	if shares == nil {
		shares = []data.Share{{Offset: 0, Count: o.BatchSize}}
	}
	all := make([][]sample, batches)
	for _, share := range shares {
		own := o
		if !o.Evaluate {
			own.Share = &share
		}
		l, err := data.NewLoader(own)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for b := range batches {
			batch, err := l.Next(context.Background())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range batch.N {
				one := sample{batch.IDs[i], map[string][]int32{}}
				for _, f := range batch.Fields[1:] {
					n := f.Bytes() / 4
					one.values[f.Name] = slices.Clone(data.Values[int32](batch, f.Name)[i*n : (i+1)*n])
				}
				all[b] = append(all[b], one)
			}
			batch.Release()
		}
	}
	return slices.Concat(all...)
}

func corpus(t testing.TB, h Header, tokens []int32, shards int) *Corpus {
	t.Helper()
	var paths []string
	for i := range shards {
		paths = append(paths, writeShard(t, h, tokens[i*len(tokens)/shards:(i+1)*len(tokens)/shards]...))
	}
	c, err := OpenOptions{}.OpenCorpus(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// numbered returns tokens whose values are their positions.
func numbered(n int) (Header, []int32) {
	h := testHeader()
	h.Vocabulary, h.EndOfText = 1<<20, 1<<20-1
	return h, count(n, 1<<20)
}

func TestWindowsOfAnEpochDoNotOverlap(t *testing.T) {
	const total, length = 1003, 10
	h, tokens := numbered(total)
	w := Windows{Corpus: corpus(t, h, tokens, 3), Length: length}
	if w.Len() != 99 {
		t.Fatalf("%d windows, want 99: one fewer than fit into 1,002 labels", w.Len())
	}
	firsts := map[int32]bool{}
	got := load(t, w, data.Options{BatchSize: 33, Seed: 7}, 3*5)
	for epoch := range 5 {
		seen := map[int32]bool{}
		first := int32(math.MaxInt32)
		for _, s := range got[epoch*99 : (epoch+1)*99] {
			x, y := s.values[Tokens], s.values[Labels]
			for i := range x {
				if x[i] != x[0]+int32(i) || y[i] != x[i]+1 || seen[x[i]] || y[i] >= total {
					t.Fatalf("epoch %d: tokens %v, labels %v", epoch, x, y)
				}
				seen[x[i]] = true
			}
			first = min(first, x[0])
		}
		firsts[first] = true
		if first >= 2*length || len(seen) != 990 {
			t.Errorf("epoch %d: begins at %d, %d tokens", epoch, first, len(seen))
		}
	}
	if len(firsts) < 3 {
		t.Errorf("5 epochs begin at %v", firsts)
	}
}

func TestAnEvaluationPredictsEveryTokenButTheFirst(t *testing.T) {
	for _, total := range []int{2, 10, 11, 12, 21, 22} {
		h, tokens := numbered(total)
		got := load(t, Windows{Corpus: corpus(t, h, tokens, 1), Length: 10, Rest: true},
			data.Options{BatchSize: 2, Evaluate: true}, 10)
		var labels []int32
		for _, s := range got {
			for i, y := range s.values[Labels] {
				if y != NoLabel {
					labels = append(labels, y)
					if s.values[Tokens][i] != y-1 {
						t.Errorf("%d tokens: token %d has label %d", total, s.values[Tokens][i], y)
					}
				}
			}
		}
		if !slices.Equal(labels, tokens[1:]) {
			t.Errorf("%d tokens: got labels %v", total, labels)
		}
	}
}

func TestTooFewTokensForAWindow(t *testing.T) {
	h, tokens := numbered(10)
	_, err := data.NewLoader(data.Options{Samples: Windows{Corpus: corpus(t, h, tokens, 1), Length: 10}, BatchSize: 1})
	var f *data.Fault
	if !errors.As(err, &f) ||
		!strings.Contains(err.Error(), "got 10 tokens, want at least one more than the 10 tokens of a sample") {
		t.Errorf("got %v", err)
	}
	if _, err := data.NewLoader(data.Options{Samples: Windows{Corpus: corpus(t, h, tokens, 1), Length: 5, Rest: true},
		BatchSize: 1}); err == nil {
		t.Error("a shorter window in training: no error")
	}
}

func TestATokenBeyondTheVocabularyEndsTheBatch(t *testing.T) {
	path := writeFile(t, "train.bin", llmc(20240520, 1, 4, []byte{1, 0, 2, 0, 0x51, 0xC4, 7, 0}))
	c, err := OpenOptions{}.OpenCorpus([]string{path})
	must(t, err)
	defer c.Close()
	l, err := data.NewLoader(data.Options{Samples: Windows{Corpus: c, Length: 3}, BatchSize: 1})
	must(t, err)
	defer l.Close()
	if _, err := l.Next(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "token 2 (byte 1028 of the file) is 50257, want below 50257") {
		t.Errorf("got %v", err)
	}
}

// kinds returns one data.Samples of each kind. All samples have 16 positions.
func kinds(t testing.TB) map[string]data.Samples {
	h, tokens := numbered(3000)
	m, err := NewMarkov(MarkovOptions{Seed: 3, Vocabulary: 50, Entropy: 1, Length: 16, Samples: 96})
	must(t, err)
	uneven, err := NewMarkov(MarkovOptions{Seed: 3, Vocabulary: 50, Entropy: 1, Length: 16, Shortest: 2, Samples: 96})
	must(t, err)
	return map[string]data.Samples{"windows": Windows{Corpus: corpus(t, h, tokens, 2), Length: 16}, "Markov": m,
		"uneven Markov": uneven, "masked Markov": maskedMarkov(t, 4),
		"masked": masked(t, false), "pairs": masked(t, true), "classification": labelled(t)}
}

func TestSamplesDoNotDependOnSharesAndWorkers(t *testing.T) {
	for name, s := range kinds(t) {
		one := load(t, s, data.Options{BatchSize: 8, Seed: 5, Workers: 1}, 20)
		many := load(t, s, data.Options{BatchSize: 8, Seed: 5, Workers: 7}, 20, data.Share{Offset: 0, Count: 5},
			data.Share{Offset: 5, Count: 0}, data.Share{Offset: 5, Count: 3})
		if len(one) != 160 || len(many) != 160 {
			t.Fatalf("%s: %d and %d samples", name, len(one), len(many))
		}
		for i := range one {
			if fmt.Sprint(one[i]) != fmt.Sprint(many[i]) {
				t.Fatalf("%s: sample %d: got %v, want %v", name, i, many[i], one[i])
			}
		}
		later := load(t, s, data.Options{BatchSize: 8, Seed: 5, Start: 11}, 2)
		for i := range later {
			if fmt.Sprint(later[i]) != fmt.Sprint(one[88+i]) {
				t.Errorf("%s: from batch 11 on: got %v, want %v", name, later[i], one[88+i])
			}
		}
	}
}

func TestReadingSamplesAllocatesNothing(t *testing.T) {
	for name, s := range kinds(t) {
		l, err := data.NewLoader(data.Options{Samples: s, BatchSize: 8, Seed: 5, Workers: 2})
		must(t, err)
		next := func() {
			b, err := l.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		for range 50 {
			next()
		}
		if n := testing.AllocsPerRun(100, next); n >= 1 {
			t.Errorf("%s: %v allocations per batch", name, n)
		}
		must(t, l.Close())
	}
}

func TestTheEntropyOfMarkovTextIsTheStatedOne(t *testing.T) {
	for _, c := range []struct {
		vocabulary int
		entropy    float64
	}{{2, 0.1}, {2, math.Log(2)}, {50, 0.01}, {50, 1}, {50, 3.9}, {65536, 2}, {65536, 11}} {
		m, err := NewMarkov(MarkovOptions{Seed: 1, Vocabulary: c.vocabulary, Entropy: c.entropy, Length: 100,
			Samples: 200})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(m.Entropy()-c.entropy) > 1e-3*c.entropy+1e-4 {
			t.Errorf("vocabulary %d: entropy %v, want %v", c.vocabulary, m.Entropy(), c.entropy)
		}
		// The mean of -log p over the text estimates the entropy. The standard deviation of this mean is that of -log
		// p, divided by sqrt(20,000).
		place := make([]int, c.vocabulary)
		for i, token := range m.order {
			place[token] = i
		}
		sum, squares, n := 0.0, 0.0, 0.0
		for _, s := range load(t, m, data.Options{BatchSize: 100}, 2) {
			for i, y := range s.values[Labels] {
				j := (place[y] - int(s.values[Tokens][i]) + c.vocabulary) % c.vocabulary
				if j >= len(m.limits) {
					t.Fatalf("vocabulary %d: transition %d has no probability", c.vocabulary, j)
				}
				width := m.limits[j]
				if j > 0 {
					width -= m.limits[j-1]
				}
				loss := -math.Log(float64(width) / (1 << 32))
				sum, squares, n = sum+loss, squares+loss*loss, n+1
			}
		}
		mean := sum / n
		deviation := math.Sqrt(max(squares/n-mean*mean, 0) / n)
		if n != 20_000 || math.Abs(mean-m.Entropy()) > 5*deviation+1e-9 {
			t.Errorf("vocabulary %d: mean loss %v ± %v of %v tokens, want %v", c.vocabulary, mean, deviation, n,
				m.Entropy())
		}
	}
}

func TestMarkovOptionsThatAreRefused(t *testing.T) {
	good := MarkovOptions{Vocabulary: 10, Entropy: 1, Length: 4, Samples: 3}
	for want, change := range map[string]func(*MarkovOptions){
		"vocabulary of 1": func(o *MarkovOptions) { o.Vocabulary = 1 }, "at most 2.3026": func(o *MarkovOptions) {
			o.Entropy = 2.31
		},
		"entropy of 0": func(o *MarkovOptions) { o.Entropy = 0 }, "entropy of NaN": func(o *MarkovOptions) {
			o.Entropy = math.NaN()
		},
		"0 positions": func(o *MarkovOptions) { o.Length = 0 }, "shortest sample: got 5": func(o *MarkovOptions) {
			o.Shortest = 5
		}, "0 samples": func(o *MarkovOptions) { o.Samples = 0 }, "part 2": func(o *MarkovOptions) { o.Part = 2 },
	} {
		o := good
		change(&o)
		if _, err := NewMarkov(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	train, _ := NewMarkov(good)
	good.Part = 1
	eval, err := NewMarkov(good)
	must(t, err)
	if !slices.Equal(train.order, eval.order) ||
		fmt.Sprint(load(t, train, data.Options{BatchSize: 3}, 1)) == fmt.Sprint(
			load(t, eval, data.Options{BatchSize: 3}, 1)) {
		t.Error("training and evaluation need the same transitions and different samples")
	}
}

var special = tokenizer.Specials{Pad: 0, Unknown: 1, Class: 2, Separator: 3, Mask: 4}

const fullStop = 5

// documents returns n documents of sentences. The first token of document d is 100 + d. Every other word is 1000 +
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
		// With 96 samples of random lengths, the mean of the labels is within 20 % of its expectation.
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
	at := map[int32]int{} // position and document of each word
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
			continue // one of the texts contains only full stops
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

func wordPiece(t testing.TB) *tokenizer.WordPiece {
	t.Helper()
	w, err := tokenizer.ParseWordPiece([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// labelled returns 96 texts of unequal lengths in three classes.
func labelled(t testing.TB) *Classification {
	t.Helper()
	var file strings.Builder
	file.WriteString("label\ttext\n")
	for i := range 96 {
		fmt.Fprintf(&file, "%d\t%s\n", i%3, strings.Repeat("a b ", i%11))
	}
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.tsv", []byte(file.String())),
		Tokenizer: wordPiece(t), Length: 16})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLabelledTexts(t *testing.T) {
	tsv := "id\tlabel\tquestion\tanswer\n1\tyes\ta b\tc\n\n2\tno\tA\ta b c d a b c d\r\n3\tyes\ta b c d a\tb c d b\n"
	jsonl := `{"question": "a b", "answer": "c", "label": "yes"}` + "\n" +
		`{"question": "A", "answer": "a b c d a b c d", "label": "no"}` + "\n\n" +
		`{"question": "a b c d a", "answer": "b c d b", "label": "yes"}`
	for name, file := range map[string]string{"a.tsv": tsv, "a.jsonl": jsonl, "mark.tsv": "\ufeff" + tsv,
		"mark.jsonl": "\ufeff" + jsonl} {
		c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, name, []byte(file)),
			Tokenizer: wordPiece(t), Length: 10, Text: "question", Second: "answer"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Classes(), []string{"no", "yes"}) || c.Truncated() != 2 {
			t.Errorf("%s: classes %q, %d truncated", name, c.Classes(), c.Truncated())
		}
		if _, eval := c.Split(1); eval.Truncated() != 2 {
			t.Errorf("%s: %d truncated texts for evaluation, want 2", name, eval.Truncated())
		}
		if train, _ := c.Split(1); train.Truncated() != 0 {
			t.Errorf("%s: %d truncated texts for training, want 0", name, train.Truncated())
		}
		want := []map[string][]int32{
			{Tokens: {2, 5, 6, 3, 7, 3, 0, 0, 0, 0}, Segments: {0, 0, 0, 0, 1, 1, 0, 0, 0, 0}, Lengths: {6},
				Labels: {1}},
			{Tokens: {2, 5, 3, 5, 6, 7, 8, 5, 6, 3}, Segments: {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, Lengths: {10},
				Labels: {0}},
			{Tokens: {2, 5, 6, 7, 8, 3, 6, 7, 8, 3}, Segments: {0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, Lengths: {10},
				Labels: {1}},
		}
		for i, s := range load(t, c, data.Options{BatchSize: 3, Evaluate: true}, 1) {
			if fmt.Sprint(s.values) != fmt.Sprint(want[i]) || c.Length(i) != int(want[i][Lengths][0]) ||
				c.Label(i) != int(want[i][Labels][0]) {
				t.Errorf("%s: sample %d: got %v, want %v", name, i, s.values, want[i])
			}
		}
	}
}

func TestLabelledTextsAreSplit(t *testing.T) {
	var lines strings.Builder
	lines.WriteString("text\tlabel\n")
	for i := range 1000 {
		fmt.Fprintf(&lines, "a\t%d\n", i%2)
	}
	path := filepath.Join(t.TempDir(), "many.tsv")
	must(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: path, Tokenizer: wordPiece(t), Length: 16})
	must(t, err)
	train, eval := c.Split(0.2)
	// The tolerance is five standard deviations of a binomial distribution.
	if train.Len()+eval.Len() != 1000 || math.Abs(float64(eval.Len())-200) > 5*math.Sqrt(1000*0.2*0.8) ||
		!slices.Equal(train.Classes(), eval.Classes()) {
		t.Errorf("%d and %d samples", train.Len(), eval.Len())
	}
	if train, eval := c.Split(0); train.Len() != 1000 || eval.Len() != 0 {
		t.Errorf("%d and %d samples, want all for training", train.Len(), eval.Len())
	}
	if again, _ := c.Split(0.2); again.Len() != train.Len() || again.Label(7) != train.Label(7) {
		t.Error("another split")
	}
}

func TestNumbersOfClassesAreInOrder(t *testing.T) {
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.jsonl", []byte(`{"text": "a", "label": 10}
{"text": "a", "label": 2}
{"text": "a", "label": -1}`)), Tokenizer: wordPiece(t), Length: 8})
	if err != nil || !slices.Equal(c.Classes(), []string{"-1", "2", "10"}) || c.Label(0) != 2 {
		t.Errorf("got %q, %v", c.Classes(), err)
	}
}

// If the names of the classes are numbers, a label is always a name, and never an index of Classes. The order of the
// labels must not affect this.
func TestNumbersOfOtherClassesAreRefused(t *testing.T) {
	for _, c := range []struct {
		classes, labels []string
		want            []int // nil: refused
	}{
		{[]string{"1", "2"}, []string{"1", "2"}, []int{0, 1}},
		{[]string{"1", "2"}, []string{"0", "1"}, nil},
		{[]string{"1", "2"}, []string{"1", "0"}, nil},
		{[]string{"1.5", "bad"}, []string{"0", "1"}, nil},
		{[]string{"no", "yes"}, []string{"1", "0"}, []int{1, 0}},
		{[]string{"no", "yes"}, []string{"no", "1"}, nil},
		{[]string{"no", "yes"}, []string{"1", "no"}, nil},
	} {
		file := "text\tlabel\na\t" + strings.Join(c.labels, "\na\t") + "\n"
		got, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.tsv", []byte(file)),
			Tokenizer: wordPiece(t), Length: 8, Classes: c.classes, Numbered: true})
		if c.want == nil {
			if err == nil {
				t.Errorf("classes %q, labels %q: got no error", c.classes, c.labels)
			}
			continue
		}
		if err != nil || int(got.Label(0)) != c.want[0] || int(got.Label(1)) != c.want[1] {
			t.Errorf("classes %q, labels %q: got %v, want %v", c.classes, c.labels, err, c.want)
		}
	}
}

// Python writes NaN into JSON. If the field is not used, NaN must not be an error.
func TestFieldsThatAreNotReadMayHaveNaN(t *testing.T) {
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.jsonl", []byte(`{"text": "a NaN", "label": 10, "score": NaN}
{"text": "a", "label": 2, "scores": [-Infinity, 1e-3]}`)), Tokenizer: wordPiece(t), Length: 8})
	if err != nil || !slices.Equal(c.Classes(), []string{"2", "10"}) || c.Len() != 2 {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestLabelledTextsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, contents, want string }{
		"CSV": {
			"a.tsv", "text,label\na,1\n", `csv.DictReader(sys.stdin)]' < a.tsv > a.jsonl converts CSV to JSON lines`},
		"a hostile name": {"a b;'$(x)'.tsv", "text,label\na,1\n",
			`' < 'a b;'\''$(x)'\''.tsv' > 'a b;'\''$(x)'\''.jsonl' converts CSV`},
		"CSV, semicolons": {"a.tsv", "text;label\na;1\n", `delimiter=";"`},
		"CSV, other name": {"a.csv", "text,label\na,1\n", "not tab-separated values"},
		"quotes": {"a.tsv", "\"text\"\t\"label\"\n\"a\"\t\"1\"\n",
			`delimiter="\t")]' < a.tsv > a.jsonl converts`},
		"JSON lines": {"a.json", `{"text": "a", "label": "1"}` + "\n", "rename the file to a.jsonl"},
		"a JSON array": {"a.json", "[\n{\"text\": \"a\", \"label\": \"1\"}]\n",
			"json.load(sys.stdin)]' < a.json > a.jsonl"},
		"Parquet": {"a.parquet", "PAR1\x15\x04\xff\xfe\x00\n",
			"the file has Parquet, not tab-separated values"},
		"no column": {"a.tsv", "sentence\tlabel\na\t1\n",
			`line 1: there is no column "text"; the columns are ["sentence" "label"]`},
		"a name twice": {"a.tsv", "label\ttext\tlabel\n1\ta\t2\n",
			`line 1: two columns have the name "label", want one`},
		"too few columns":  {"a.tsv", "text\tlabel\na\t1\na\n", `line 3: got 1 columns, want 2`},
		"no label":         {"a.tsv", "text\tlabel\na\t \n", `line 2: "label" is empty`},
		"one class":        {"a.tsv", "text\tlabel\na\t1\n", `all labels are ["1"]`},
		"empty":            {"a.tsv", "", "no labelled texts"},
		"names only":       {"a.tsv", "text\tlabel\n", "no labelled texts"},
		"not UTF-8":        {"a.tsv", "text\tlabel\na\xff\t1\n", "line 2: byte 1 is not UTF-8: ff"},
		"no JSON":          {"a.jsonl", "text\n", "line 1: want a JSON object"},
		"no field":         {"a.jsonl", `{"text": "a"}`, `line 1: no value of "label"`},
		"a list":           {"a.jsonl", `{"text": ["a"], "label": 1}`, `"text" is a list, want one string or number`},
		"an object":        {"a.jsonl", `{"text": {"a": 1}, "label": 1}`, `"text" is an object, want a string`},
		"NaN":              {"a.jsonl", `{"text": "a", "label": NaN, "score": NaN}`, `line 1: no value of "label"`},
		"an unknown class": {"b.tsv", "text\tlabel\na\tmaybe\n", `line 2: got label "maybe", want one of ["no" "yes"]`},
		"a long line": {"a.tsv", "text\tlabel\n" + strings.Repeat("x", 16<<20) + "\t1\n",
			"line 2: more than 16 MiB"},
	} {
		o := ClassificationOptions{Path: writeFile(t, c.file, []byte(c.contents)), Tokenizer: wordPiece(t), Length: 8}
		if c.file == "b.tsv" {
			o.Classes = []string{"no", "yes"}
		}
		_, err := OpenClassification(t.Context(), o)
		var f *data.Fault
		if !errors.As(err, &f) || f.Path != o.Path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %q", name, err, c.want)
		}
	}
	if _, err := OpenClassification(t.Context(), ClassificationOptions{Path: filepath.Join(t.TempDir(), "none.tsv"),
		Tokenizer: wordPiece(t), Length: 8}); !errors.Is(err, os.ErrNotExist) &&
		(err == nil || !strings.Contains(err.Error(), "no such file")) {
		t.Errorf("got %v", err)
	}
}

func TestFit(t *testing.T) {
	for _, c := range [][5]int{{3, 2, 5, 3, 2}, {9, 2, 5, 3, 2}, {2, 9, 5, 2, 3}, {9, 9, 5, 3, 2}, {0, 9, 5, 0, 5},
		{5, 4, 8, 4, 4}, {5, 4, 7, 4, 3}} {
		if a, b := fit(c[0], c[1], c[2]); a != c[3] || b != c[4] {
			t.Errorf("%v: got %d, %d", c, a, b)
		}
	}
}

// FuzzClassification checks that a file is either refused, or that each of its samples has a class and fits into the
// length.
func FuzzClassification(f *testing.F) {
	f.Add([]byte("text\tlabel\na b\t1\nc\t2\n"), false)
	f.Add([]byte("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": true}"), true)
	f.Fuzz(func(t *testing.T, file []byte, lines bool) {
		name := "a.tsv"
		if lines {
			name = "a.jsonl"
		}
		c, err := OpenClassification(t.Context(),
			ClassificationOptions{Path: writeFile(t, name, file), Tokenizer: wordPiece(t), Length: 6})
		if err != nil {
			var fault *data.Fault
			if !errors.As(err, &fault) {
				t.Fatal(err)
			}
			return
		}
		for i := range c.Len() {
			if c.Length(i) > 6 || c.Label(i) < 0 || c.Label(i) >= len(c.Classes()) {
				t.Fatalf("sample %d: length %d, class %d of %q", i, c.Length(i), c.Label(i), c.Classes())
			}
		}
	})
}

// Training divides the loss of masked tokens by the labels of all ranks. Every rank must count these labels in advance.
func TestLabelsOfPairsAreCountedInAdvance(t *testing.T) {
	m := masked(t, true)
	const batch = 10
	l, err := data.NewLoader(data.Options{Samples: m, BatchSize: batch, Seed: 3, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sum, positions := 0, 0
	for range 2 * l.BatchesPerEpoch() {
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, label := range data.Values[int32](b, Labels) {
			if label != NoLabel {
				n++
			}
		}
		if b.StepLabels != n {
			t.Fatalf("step %d: got %d labels, the batch has %d", b.Step, b.StepLabels, n)
		}
		sum, positions = sum+n, positions+batch*m.o.Length
		b.Release()
	}
	if got := float64(sum) / float64(positions); math.Abs(got-m.Counted()) > 0.1*got {
		t.Errorf("%v of the positions have labels, Counted returns %v", got, m.Counted())
	}
}
