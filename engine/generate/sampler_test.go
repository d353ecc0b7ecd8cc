package generate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSamplerChoosesWithinItsLimits(t *testing.T) {
	logits := []float32{0, 2, 1, 2} // in descending order of probability: 1 and 3, then 2, then 0
	for _, c := range []struct {
		name string
		o    SamplerOptions
		want []bool // for each token, whether the sampler may choose it
	}{
		{"most likely", SamplerOptions{Temperature: 0, TopP: 1}, []bool{false, true, false, false}},
		{"all", SamplerOptions{Temperature: 1, TopP: 1}, []bool{true, true, true, true}},
		{"top 1", SamplerOptions{Temperature: 1, TopK: 1, TopP: 1}, []bool{false, true, false, false}},
		{"top 3", SamplerOptions{Temperature: 1, TopK: 3, TopP: 1}, []bool{false, true, true, true}},
		{"top 0.7", SamplerOptions{Temperature: 1, TopP: 0.7}, []bool{false, true, false, true}},
		{"cold", SamplerOptions{Temperature: 1e-9, TopP: 1}, []bool{false, true, false, true}},
	} {
		s, err := NewSampler(c.o)
		if err != nil {
			t.Fatal(err)
		}
		var count [4]int
		for range 2000 {
			token, err := s.Choose(logits)
			if err != nil {
				t.Fatal(err)
			}
			count[token]++
		}
		for i, n := range count {
			if (n > 0) != c.want[i] {
				t.Errorf("%s: token %d came %d times", c.name, i, n)
			}
		}
		if c.name == "all" { // probabilities 0.05, 0.40, 0.15, 0.40; the limit exceeds 5 standard deviations
			for i, p := range []float64{0.0541, 0.3995, 0.1470, 0.3995} {
				if got := float64(count[i]) / 2000; math.Abs(got-p) > 0.06 {
					t.Errorf("token %d: frequency %v, want %v", i, got, p)
				}
			}
		}
	}
}

func TestSamplerRefusesOptionsOutOfRange(t *testing.T) {
	nan := math.NaN()
	for _, o := range []SamplerOptions{{Temperature: -1, TopP: 1}, {Temperature: nan, TopP: 1},
		{Temperature: math.Inf(1), TopP: 1}, {TopK: -1, TopP: 1}, {TopP: 0}, {TopP: 1.1}, {TopP: nan}} {
		if _, err := NewSampler(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	s, err := NewSampler(SamplerOptions{TopP: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, logits := range [][]float32{nil, {1, float32(nan)}, {float32(math.Inf(1))}} {
		if _, err := s.Choose(logits); err == nil {
			t.Errorf("%v: no error", logits)
		}
	}
}

// A simple implementation sorts all tokens. The sampler sorts only the tokens that a draw needs, and must choose the
// same tokens.
func TestSamplerChoosesAsOneThatSortsAllTokens(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	for _, o := range []SamplerOptions{
		{Temperature: 0, TopP: 1}, {Temperature: 1, TopP: 1}, {Temperature: 0.7, TopK: 40, TopP: 1},
		{Temperature: 1, TopP: 0.9},
		{Temperature: 1.5, TopK: 7, TopP: 0.5}, {Temperature: 1, TopK: 1 << 20, TopP: 0.99},
	} {
		s, err := NewSampler(o)
		if err != nil {
			t.Fatal(err)
		}
		draws := rand.New(rand.NewPCG(o.Seed, 0))
		for range 200 {
			logits := make([]float32, 300)
			for i := range logits {
				logits[i] = float32(random.IntN(40)) / 5 // many equal scores
			}
			want := sorted(logits, o, draws)
			if got, err := s.Choose(logits); err != nil || got != want {
				t.Fatalf("%+v: got token %d, %v, want %d", o, got, err, want)
			}
		}
	}
	logits := make([]float32, 50257)
	for i := range logits {
		logits[i] = float32(random.NormFloat64() * 3)
	}
	r := newRanking(logits)
	if r.token(39); len(r.ranked) != 40 {
		t.Errorf("%d tokens are sorted, want 40", len(r.ranked))
	}
}

// sorted chooses a token as the documentation of SamplerOptions describes.
func sorted(logits []float32, o SamplerOptions, draws *rand.Rand) int32 {
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b)) })
	if o.Temperature == 0 {
		return order[0]
	}
	if o.TopK > 0 {
		order = order[:min(o.TopK, len(order))]
	}
	sum := 0.0
	weight := func(token int32) float64 { return math.Exp(float64(logits[token]-logits[order[0]]) / o.Temperature) }
	for _, token := range order {
		sum += weight(token)
	}
	reached := 0.0
	for i, token := range order {
		if reached += weight(token); o.TopP < 1 && reached >= o.TopP*sum {
			order, sum = order[:i+1], reached
			break
		}
	}
	at := draws.Float64() * sum
	for _, token := range order {
		if at -= weight(token); at < 0 {
			return token
		}
	}
	return order[0]
}
