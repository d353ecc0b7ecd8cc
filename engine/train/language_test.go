package train

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/language"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

const (
	phraseLength = 6
	phraseWords  = 11 // size of the vocabulary
)

// phrases are samples of tokens. The number of targets that count differs between samples, and can be 0.
type phrases struct{ n int }

func (p phrases) Len() int { return p.n }

func (p phrases) Layout(*data.Options) (data.Layout, error) {
	return data.Layout{
		Fields: []data.Field{{Name: language.Tokens, DType: tensor.I32, Shape: []int{phraseLength}, PerPosition: true},
			{Name: task.Labels, DType: tensor.I32, Shape: []int{phraseLength}, Pad: 0xff, PerPosition: true}}}, nil
}

// Length implements [data.Lengths]. The positions from this length on have no label.
func (p phrases) Length(index int) int { return max(index%(phraseLength+1), 1) }

func (p phrases) NewSource(*data.Options) (data.Source, error) { return p, nil }
func (p phrases) Close() error                                 { return nil }

func (p phrases) Read(s *data.Span, errs []error) {
	for j := s.Lo; j < s.Hi; j++ {
		index := int(s.Index[j])
		for k := range phraseLength {
			token, label := index*k%phraseWords, index*(k+1)%phraseWords
			if (index+k)%3 == 0 || k >= index%(phraseLength+1) {
				label = -1
			}
			binary.LittleEndian.PutUint32(s.Field(0, j)[4*k:], uint32(token))
			binary.LittleEndian.PutUint32(s.Field(1, j)[4*k:], uint32(int32(label)))
		}
		errs[j-s.Lo] = nil
	}
}

// countOf counts the targets of a sample that count, with a simple loop.
func (p phrases) countOf(index int) (n int) {
	for k := range phraseLength {
		if (index+k)%3 != 0 && k < index%(phraseLength+1) {
			n++
		}
	}
	return n
}

func languageOptions(dropout float64) replica.Options {
	size := gpt2.Size{Vocabulary: phraseWords, Positions: phraseLength, Layers: 2, Heads: 2, Channels: 8}
	return replica.Options{
		Task: language.Predict{
			Model: gpt2.Build(size, gpt2.Options{EmbeddingDropout: dropout, AttentionDropout: dropout,
				ResidualDropout: dropout}), Length: phraseLength},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05, ClipNorm: 0.5},
	}
}

func TestUnequalSharesOfTokensTrainAsOneRank(t *testing.T) {
	trainsAsOneRank(t, languageOptions, func(t *testing.T, one session, ranks []session) {
		for i, step := range ranks[0].steps {
			if want := one.steps[i].Count; step.Count != want || want <= 0 || want >= step.Samples*phraseLength {
				t.Errorf("step %d: %d targets count, one rank has %d", i+1, step.Count, want)
			}
		}
	})
}

func TestMeansDivideByTheTargetsThatCount(t *testing.T) {
	s := alone(t, languageOptions(0), openReference)
	samples, want := phrases{8}, 0
	for i := range samples.n {
		want += samples.countOf(i)
	}
	r, loader := s.replica, testLoader(t, languageOptions(0), true)
	if err := r.PrepareEvaluation(); err != nil {
		t.Fatal(err)
	}
	var all replica.Sums
	for range loader.BatchesPerEpoch() {
		b, err := loader.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sums, err := r.Evaluate(b)
		b.Release()
		if err != nil {
			t.Fatal(err)
		}
		all.Add(sums)
	}
	last := s.evals[len(s.evals)-1]
	if all.Samples != samples.n || all.Count != want || math.Abs(last.Loss-all.Loss/float64(want)) > 1e-12 ||
		last.Top1 != float64(all.Top1)/float64(want) {
		t.Errorf("got %+v and evaluation %+v, want means over %d targets", all, last, want)
	}
	if last.Top1 <= 0 || last.Top1 > last.Top5 || last.Top5 > 1 {
		t.Errorf("accuracies %v and %v", last.Top1, last.Top5)
	}
	best := s.result.Best
	if want := math.Exp(last.Loss); best == nil || best.Metric != "perplexity" || float64(best.Value) > want {
		t.Errorf("best is %+v, want a perplexity of at most %v", best, want)
	}
}

// silenced provides batches. No target in the second half of a batch counts.
type silenced struct{ phrases }

func (s silenced) NewSource(*data.Options) (data.Source, error) { return s, nil }

func (s silenced) Read(span *data.Span, errs []error) {
	s.phrases.Read(span, errs)
	for j := max(span.Lo, testBatch); j < span.Hi; j++ {
		for k := range span.Field(1, j) {
			span.Field(1, j)[k] = 0xff
		}
	}
}

// The loss is a mean over the targets that count. If the second half of a batch has no such targets, its step must
// equal the step of the first half.
func TestSamplesWithoutTargetsDoNotScaleTheGradient(t *testing.T) {
	step := func(batch int, samples data.Samples) replica.StepResult {
		o := languageOptions(0)
		o.BatchSize = batch
		return stepOf(t, o, data.Options{Samples: samples, BatchSize: batch, Evaluate: true, Workers: 1})
	}
	half, whole := step(testBatch, phrases{testBatch}), step(2*testBatch, silenced{phrases{2 * testBatch}})
	if half.Count != whole.Count || whole.Samples != 2*half.Samples {
		t.Fatalf("got %+v, want the targets of %+v", whole.Sums, half.Sums)
	}
	if a, b := half.Score().Loss, whole.Score().Loss; math.Abs(a-b) > 1e-6*a {
		t.Errorf("loss %v, want %v", b, a)
	}
	if math.Abs(half.GradNorm-whole.GradNorm) > 1e-5*half.GradNorm {
		t.Errorf("norm of the gradient %v, want %v", whole.GradNorm, half.GradNorm)
	}
}

func TestLanguageRunsResumeBitEqual(t *testing.T) {
	o := languageOptions(0.1)
	whole := start(context.Background(), t, openReference(t), t.TempDir(), o, &recorder{}, nil)
	if whole.err != nil {
		t.Fatal(whole.err)
	}
	dir, pieces := t.TempDir(), &recorder{}
	for _, stop := range []int64{5, testSteps} {
		ctx, cancel := context.WithCancel(context.Background())
		pieces.after = func(step int64) {
			if step == stop {
				cancel()
			}
		}
		if s := start(ctx, t, openReference(t), dir, o, pieces, nil); s.err != nil {
			t.Fatal(s.err)
		}
		cancel()
	}
	for i := range whole.losses {
		if whole.losses[i] != pieces.losses[i] || whole.norms[i] != pieces.norms[i] {
			t.Errorf("step %d: loss %v, norm %v, undisturbed %v and %v", i+1, pieces.losses[i], pieces.norms[i],
				whole.losses[i], whole.norms[i])
		}
	}
}
