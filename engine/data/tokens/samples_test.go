package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// sample is one sample that a loader returned.
type sample struct {
	id     int64
	values map[string][]int32
}

// load reads batches of n samples and returns the samples in order. shares divides the batches among ranks.
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

// numbered returns n tokens. The value of each token is its position.
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

// kinds returns data.Samples of each kind. All samples have 16 positions.
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
		// The mean of -log p over the text estimates the entropy. Its standard deviation is that of -log p, divided by
		// sqrt(20,000).
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
