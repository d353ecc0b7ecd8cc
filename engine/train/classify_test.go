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

// sentences provides n labelled samples of different lengths. The samples are padded to phraseLength.
type sentences struct{ n, classes int }

func (s sentences) Len() int { return s.n }

func (s sentences) Layout(*data.Options) (data.Layout, error) {
	at := func(name string, shape ...int) data.Field {
		return data.Field{Name: name, DType: tensor.I32, Shape: shape, PerPosition: shape != nil}
	}
	labels := at(task.Labels)
	labels.Pad = 0xff
	return data.Layout{Fields: []data.Field{at(language.Tokens, phraseLength), labels,
		at(language.Segments, phraseLength), at(language.Lengths)}}, nil
}

func (s sentences) NewSource(*data.Options) (data.Source, error) { return s, nil }
func (s sentences) Close() error                                 { return nil }

// label and length depend only on the index of a sample.
func (s sentences) label(index int) int  { return index * 5 % 7 % s.classes }
func (s sentences) length(index int) int { return 1 + index*3%phraseLength }

// Length implements [data.Lengths].
func (s sentences) Length(index int) int { return s.length(index) }

func (s sentences) Read(span *data.Span, errs []error) {
	put := func(field []byte, k, value int) { binary.LittleEndian.PutUint32(field[4*k:], uint32(value)) }
	for j := span.Lo; j < span.Hi; j++ {
		index := int(span.Index[j])
		for k := range phraseLength {
			token, segment := 0, 0
			if k < s.length(index) {
				token, segment = (index*k+s.label(index))%phraseWords, k*2/phraseLength
			}
			put(span.Field(0, j), k, token)
			put(span.Field(2, j), k, segment)
		}
		put(span.Field(1, j), 0, s.label(index))
		put(span.Field(3, j), 0, s.length(index))
		errs[j-span.Lo] = nil
	}
}

func classifyOptions(classes int, dropout float64) replica.Options {
	size := bert.Size{Vocabulary: phraseWords, Positions: phraseLength, Segments: 2, Layers: 2, Heads: 2, Channels: 8}
	return replica.Options{
		Task: language.Classify{
			Model:   bert.BuildClassifier(size, bert.Options{HiddenDropout: dropout, AttentionDropout: dropout}),
			Classes: classes, Length: phraseLength},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05, ClipNorm: 0.5},
	}
}

// twoOrThreeClasses returns options with three classes if there is dropout, otherwise with two.
func twoOrThreeClasses(dropout float64) replica.Options {
	if dropout > 0 {
		return classifyOptions(3, dropout)
	}
	return classifyOptions(2, 0)
}

func TestUnequalSharesOfPaddedTextsTrainAsOneRank(t *testing.T) {
	trainsAsOneRank(t, twoOrThreeClasses, func(t *testing.T, one session, ranks []session) {
		for rank, s := range ranks {
			if got, want := s.evals[len(s.evals)-1].F1, one.evals[len(one.evals)-1].F1; got != want || want <= 0 {
				t.Errorf("rank %d: F1 is %v, one rank has %v", rank, got, want)
			}
		}
	})
}

// The test computes the expected F1 from the probabilities of the classes.
func TestF1OfAnEvaluationCountsThePredictedClasses(t *testing.T) {
	for _, classes := range []int{2, 3} {
		dir := t.TempDir()
		s := start(t.Context(), t, openReference(t), dir, classifyOptions(classes, 0), &recorder{}, nil)
		if s.err != nil {
			t.Fatal(s.err)
		}
		samples, want := sentences{8, classes}, task.NewConfusion(classes)
		p, err := replica.NewPredictor(openReference(t), classifyOptions(classes, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		c := newest(t, dir)
		if err := p.LoadWeights(c.Model); err != nil {
			t.Fatal(err)
		}
		l := testLoader(t, classifyOptions(classes, 0), true)
		for range l.BatchesPerEpoch() {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Run(b); err != nil {
				t.Fatal(err)
			}
			probabilities := make([]float64, classes)
			for i := range b.N {
				if err := p.Probabilities(i, probabilities); err != nil {
					t.Fatal(err)
				}
				best := 0
				for class, v := range probabilities {
					if v > probabilities[best] {
						best = class
					}
				}
				want.Count(samples.label(int(b.IDs[i])), best)
			}
			b.Release()
		}
		if got := s.evals[len(s.evals)-1].F1; math.Abs(got-want.F1()) > 1e-12 || got <= 0 {
			t.Errorf("%d classes: got F1 %v, want %v", classes, got, want.F1())
		}
	}
}
