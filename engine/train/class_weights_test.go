package train

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

func TestUnequalSharesOfWeightedClassesTrainAsOneRank(t *testing.T) {
	weighted := func(dropout float64) replica.Options {
		o := twoOrThreeClasses(dropout)
		o.ClassWeights = []float64{0.25, 3, 1.5}
		return o
	}
	trainsAsOneRank(t, weighted, func(t *testing.T, one session, ranks []session) {
		plain := alone(t, twoOrThreeClasses(0), openReference)
		if one.losses[0] == plain.losses[0] {
			t.Errorf("got the loss %v of a run without weights", plain.losses[0])
		}
	})
}

// firstStep trains one step by plain gradient descent. It returns the loss, and the changes of all parameters.
func firstStep(t *testing.T, weights []float64) (loss float64, change []float64) {
	t.Helper()
	o := classifyOptions(2, 0)
	o.Optimizer, o.ClassWeights = optim.Options{Name: "sgd"}, weights
	before, err := replica.New(openReference(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	s := start(t.Context(), t, openReference(t), t.TempDir(), o, &recorder{}, func(o *Options) { o.Steps = 1 })
	if s.err != nil {
		t.Fatal(s.err)
	}
	was, is := parameters(t, before), parameters(t, s.replica)
	for i := range is {
		change = append(change, is[i]-was[i])
	}
	return s.losses[0], change
}

func parameters(t *testing.T, r *replica.Replica) (values []float64) {
	t.Helper()
	model, _ := r.Tensors()
	for _, x := range model {
		b := bytes.NewBuffer(bytes.Clone(x.Data))
		if x.Stream != nil {
			if err := x.Stream(b); err != nil {
				t.Fatal(err)
			}
		}
		for raw := b.Bytes(); len(raw) > 0; raw = raw[4:] {
			values = append(values, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
	}
	return values
}

// TestClassWeightsAreFactorsOfLossAndGradient relies on a property of loss and gradient: both are sums over the
// classes.
func TestClassWeightsAreFactorsOfLossAndGradient(t *testing.T) {
	plainLoss, plain := firstStep(t, nil)
	oneLoss, one := firstStep(t, []float64{1, 1})
	firstLoss, first := firstStep(t, []float64{1, 0})
	secondLoss, second := firstStep(t, []float64{0, 1})
	bothLoss, both := firstStep(t, []float64{0.5, 3})
	norm := 0.0
	for i := range both {
		norm = max(norm, math.Abs(both[i]))
	}
	const rounding = 1e-6 // error of the differences of f32 parameters
	near := func(a, b, scale float64) bool { return math.Abs(a-b) <= 1e-5*scale+rounding }
	if oneLoss != plainLoss || !near(firstLoss+secondLoss, plainLoss, 1) ||
		!near(bothLoss, 0.5*firstLoss+3*secondLoss, 1) || firstLoss <= 0 || secondLoss <= 0 {
		t.Errorf("losses: without weights %v, weights of 1 %v, classes alone %v and %v, weighted %v", plainLoss,
			oneLoss, firstLoss, secondLoss, bothLoss)
	}
	for i := range both {
		if one[i] != plain[i] || !near(both[i], 0.5*first[i]+3*second[i], norm) {
			t.Fatalf("parameter %d: without weights %v, weights of 1 %v, classes alone %v and %v, weighted %v", i,
				plain[i], one[i], first[i], second[i], both[i])
		}
	}
	if norm < 1000*rounding {
		t.Errorf("the largest change is %v, too small for the comparison", norm)
	}
}

func TestALabelWithoutAWeightIsRefused(t *testing.T) {
	o := classifyOptions(3, 0)
	o.ClassWeights = []float64{1, 2}
	s := start(t.Context(), t, openReference(t), t.TempDir(), o, &recorder{}, nil)
	if s.err == nil || !strings.Contains(s.err.Error(), "want one of the 2 classes that have weights") {
		t.Errorf("got %v", s.err)
	}
}

// TestTheBestEvaluationFollowsTheChosenMetric compares the best evaluation with all evaluations of the run.
func TestTheBestEvaluationFollowsTheChosenMetric(t *testing.T) {
	for _, key := range []string{"", "auto", "loss", "f1", "macro_f1"} {
		s := start(t.Context(), t, openReference(t), t.TempDir(), classifyOptions(3, 0), &recorder{}, func(o *Options) {
			o.BestMetric = key
		})
		if s.err != nil {
			t.Fatal(s.err)
		}
		metric := s.replica.Options().Task.Report().Named(key)
		if want := map[string]string{"": "top1", "auto": "top1"}[key]; want == "" && metric.Key != key || want != "" &&
			metric.Key != want {
			t.Fatalf("%q: got metric %s", key, metric.Key)
		}
		best := s.evals[0]
		for _, e := range s.evals[1:] {
			if metric.Better(metric.Of(e.Score()), metric.Of(best.Score())) {
				best = e
			}
		}
		if got := s.result.Best; got.Metric != metric.Key || got.Step != best.Step ||
			float64(got.Value) != metric.Of(best.Score()) {
			t.Errorf("%q: got %+v, want step %d with %v", key, got, best.Step, metric.Of(best.Score()))
		}
	}
}
