package train

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// With the weights of a checkpoint, a predictor must give the same scores as the run, to the bit. The batch of the
// predictor is larger than the last batch of the run.
func TestPredictorScoresAsTheRunDid(t *testing.T) {
	for _, open := range []func(*testing.T) device.Device{openReference, openCPU} {
		dev := open(t)
		t.Run(dev.Info().Kind, func(t *testing.T) {
			o, dir := testOptions(), t.TempDir()
			s := start(context.Background(), t, dev, dir, o, new(recorder), func(*Options) {})
			if s.err != nil {
				t.Fatal(s.err)
			}
			c := newest(t, dir)
			before, _ := dev.Memory()
			p, err := replica.NewPredictor(dev, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.LoadWeights(c.Model); err != nil {
				t.Fatal(err)
			}
			sums := score(t, p, o)
			want := s.evals[len(s.evals)-1]
			if n := float64(sums.Samples); sums.Samples != want.Samples || sums.Loss/n != want.Loss ||
				float64(sums.Top1)/n != want.Top1 || float64(sums.Top5)/n != want.Top5 {
				t.Errorf("got %+v, want the run's own evaluation %+v", sums, want)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if after, _ := dev.Memory(); after != before {
				t.Errorf("%d bytes were not given back", after-before)
			}
		})
	}
}

// score evaluates the held-out samples. The probabilities of each sample must sum to 1, and must agree with the top-1
// count.
func score(t *testing.T, p *replica.Predictor, o replica.Options) replica.Sums {
	t.Helper()
	l := testLoader(t, o, true)
	var all replica.Sums
	right := 0
	for {
		b, err := l.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sums, err := p.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		all.Add(sums)
		loss, probabilities := 0.0, make([]float64, testClasses)
		labels := data.Values[int32](b, data.Labels)
		for i := range b.N {
			if err := p.Probabilities(i, probabilities); err != nil {
				t.Fatal(err)
			}
			sum, best := 0.0, 0
			for c, v := range probabilities {
				if sum += v; v > probabilities[best] {
					best = c
				}
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Errorf("sample %d: probabilities %v sum to %v", i, probabilities, sum)
			}
			if best == int(labels[i]) {
				right++
			}
			loss -= math.Log(probabilities[labels[i]])
		}
		if math.Abs(loss-sums.Loss) > 1e-5*math.Abs(loss) {
			t.Errorf("probabilities say a loss of %v, the pass %v", loss, sums.Loss)
		}
		b.Release()
	}
	if right != all.Top1 {
		t.Errorf("probabilities are right about %d samples, the pass counted %d", right, all.Top1)
	}
	return all
}

func TestPredictorNeedsNeitherGradientsNorMoments(t *testing.T) {
	dev, o := openReference(t), testOptions()
	p, err := replica.NewPredictor(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	predicting, _ := dev.Memory()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := replica.New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if training := r.PredictedBytes(); predicting >= training-2*r.State().Params.Bytes {
		t.Errorf("got %d bytes, want fewer than the %d of training by gradients and moments, %d each", predicting,
			training, r.State().Params.Bytes)
	}
}

func TestPredictorRefusesAnotherModel(t *testing.T) {
	dev, dir := openReference(t), t.TempDir()
	if s := start(context.Background(), t, dev, dir, testOptions(), new(recorder), func(*Options) {}); s.err != nil {
		t.Fatal(s.err)
	}
	c := newest(t, dir)
	o := testOptions()
	use(&o, simplecnn.Build(simplecnn.Options{Channels: []int{3, 5}}))
	o.Compute = tensor.F32
	p, err := replica.NewPredictor(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var mismatch *checkpoint.MismatchError
	if err := p.LoadWeights(c.Model); !errors.As(err, &mismatch) || len(mismatch.Differences) == 0 {
		t.Errorf("got %v, want the differences", err)
	}
}
