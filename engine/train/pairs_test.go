package train

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/models/bert"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/language"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// pairs provides n samples with masked tokens, and with a label for the next sentence. Sample i+period equals sample i,
// but has no masked tokens.
type pairs struct{ n, period int }

func (p pairs) Len() int { return p.n }

func (p pairs) Layout(*data.Options) (data.Layout, error) {
	at := func(name string, pad byte, shape ...int) data.Field {
		return data.Field{Name: name, DType: tensor.I32, Shape: shape, Pad: pad}
	}
	return data.Layout{Fields: []data.Field{at(language.Tokens, 0, phraseLength), at(task.Labels, 0xff, phraseLength),
		at(language.Segments, 0, phraseLength),
		at(language.Lengths, 0), at(language.Next, 0xff)}}, nil
}

func (p pairs) NewSource(*data.Options) (data.Source, error) { return p, nil }
func (p pairs) Close() error                                 { return nil }

// masked reports whether position k of a sample has a label.
func (p pairs) masked(index, k int) bool {
	return index < p.period && k < 2+index%4 && (k == 0 || (index+k)%3 == 0)
}

func (p pairs) next(index int) int { return index % p.period * 5 % 7 % 2 }

func (p pairs) Read(span *data.Span, errs []error) {
	put := func(field []byte, k, value int) { binary.LittleEndian.PutUint32(field[4*k:], uint32(value)) }
	for j := span.Lo; j < span.Hi; j++ {
		index := int(span.Index[j])
		text := index % p.period
		for k := range phraseLength {
			label := -1
			if p.masked(index, k) {
				label = text * (k + 1) % phraseWords
			}
			put(span.Field(0, j), k, (text*k+p.next(index))%phraseWords)
			put(span.Field(1, j), k, label)
			put(span.Field(2, j), k, k*2/phraseLength)
		}
		put(span.Field(3, j), 0, 2+text%4)
		put(span.Field(4, j), 0, p.next(index))
		errs[j-span.Lo] = nil
	}
}

// CountLabels implements [data.LabelCounter].
func (p pairs) CountLabels(_, index int) (n int, err error) {
	for k := range phraseLength {
		if p.masked(index, k) {
			n++
		}
	}
	return n, nil
}

func pairOptions(dropout float64) replica.Options {
	size := bert.Size{Vocabulary: phraseWords, Positions: phraseLength, Segments: 2, Layers: 2, Heads: 2, Channels: 8}
	return replica.Options{
		Task: language.Predict{
			Model: bert.Build(size, bert.Options{HiddenDropout: dropout, AttentionDropout: dropout,
				NextSentence: true}),
			Length: phraseLength, Padded: true, Masked: true, NextSentence: true},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05, ClipNorm: 0.5},
	}
}

func TestUnequalSharesOfPairsTrainAsOneRank(t *testing.T) {
	trainsAsOneRank(t, pairOptions, func(t *testing.T, one session, ranks []session) {
		for rank, s := range ranks {
			if got, want := s.evals[len(s.evals)-1], one.evals[len(one.evals)-1]; got.SampleTop1 != want.SampleTop1 ||
				want.SampleTop1 <= 0 || !(got.SampleLoss > 0) {
				t.Errorf("rank %d: got %+v, one rank has %+v", rank, got, want)
			}
		}
	})
}

// Micro-batches have different numbers of labels. A step must nevertheless be that of the whole batch.
func TestMicroBatchesOfPairsTrainAsOneBatch(t *testing.T) {
	split := pairOptions(0)
	split.Accumulation = 3
	follows(t, alone(t, pairOptions(0), openReference), []session{alone(t, split, openReference)})
}

// The loss is the mean over the masked tokens, plus the mean over the pairs. The second half of the large batch repeats
// the pairs of the first half, without masked tokens. Both means must therefore be equal, and so must the steps.
func TestPairsAreDividedBySamplesAndMaskedTokensByLabels(t *testing.T) {
	step := func(batch int) replica.StepResult {
		o := pairOptions(0)
		o.BatchSize = batch
		return stepOf(t, o, data.Options{Samples: pairs{batch, testBatch}, BatchSize: batch, Workers: 1})
	}
	half, whole := step(testBatch), step(2*testBatch)
	if half.Count != whole.Count || whole.SampleTop1 != 2*half.SampleTop1 || half.Count == half.Samples {
		t.Fatalf("got %+v, want the labels of %+v", whole.Sums, half.Sums)
	}
	if a, b := half.Score(), whole.Score(); math.Abs(a.Loss-b.Loss) > 1e-6*a.Loss ||
		math.Abs(a.SampleLoss-b.SampleLoss) > 1e-6*a.SampleLoss || !(a.SampleLoss > 0.1) {
		t.Errorf("got %+v, want %+v", b, a)
	}
	if math.Abs(half.GradNorm-whole.GradNorm) > 1e-5*half.GradNorm {
		t.Errorf("norm of the gradient %v, want %v", whole.GradNorm, half.GradNorm)
	}
}
