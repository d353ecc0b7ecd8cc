package generate

import (
	"math"
	"testing"
)

func TestSamplerChoosesWithinItsLimits(t *testing.T) {
	logits := []float32{0, 2, 1, 2} // descending probability: 1 and 3, then 2, then 0
	for _, c := range []struct {
		name string
		o    SamplerOptions
		want []bool // whether each token may be chosen
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
		if c.name == "all" { // probabilities 0.05, 0.40, 0.15, 0.40; the limit is more than 5 standard deviations
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
	for _, o := range []SamplerOptions{{Temperature: -1, TopP: 1}, {Temperature: nan, TopP: 1}, {Temperature: math.Inf(1), TopP: 1}, {TopK: -1, TopP: 1}, {TopP: 0}, {TopP: 1.1}, {TopP: nan}} {
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
