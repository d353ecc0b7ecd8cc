package generate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// SamplerOptions determines the distribution from which a Sampler draws.
type SamplerOptions struct {
	Temperature float64 // divisor of the logits; 0: always choose the most likely token
	TopK        int     // number of most likely tokens to choose from; 0: all
	TopP        float64 // choose from the most likely tokens whose probabilities sum to at least TopP; 1: all
	Seed        uint64
}

// Check returns an error for options that are out of range.
func (o SamplerOptions) Check() error {
	switch {
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 1):
		return fmt.Errorf("temperature: got %g, want 0 or more", o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("top-k: got %d, want 0 or more", o.TopK)
	case !(o.TopP > 0 && o.TopP <= 1):
		return fmt.Errorf("top-p: got %g, want more than 0 and at most 1", o.TopP)
	}
	return nil
}

// Sampler chooses tokens. Equal options and equal logits give equal tokens.
type Sampler struct {
	o      SamplerOptions
	random *rand.Rand
}

// NewSampler returns a sampler, or the error of o.Check.
func NewSampler(o SamplerOptions) (*Sampler, error) {
	return &Sampler{o, rand.New(rand.NewPCG(o.Seed, 0))}, o.Check()
}

// Choose draws the next token. If two tokens are equally likely, the one with the lower number counts as more likely.
// Choose returns an error if a logit is NaN or infinite, because the weights are then not those of a trained model.
func (s *Sampler) Choose(logits []float32) (int32, error) {
	order := make([]int32, len(logits))
	for i, l := range logits {
		if l-l != 0 {
			return 0, fmt.Errorf("the model's score of token %d is %g", i, l)
		}
		order[i] = int32(i)
	}
	if len(order) == 0 {
		return 0, fmt.Errorf("got no scores")
	}
	likely := func(a, b int32) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b)) }
	if s.o.Temperature == 0 {
		return slices.MinFunc(order, likely), nil
	}
	slices.SortFunc(order, likely)
	if s.o.TopK > 0 {
		order = order[:min(s.o.TopK, len(order))]
	}
	most, sum := float64(logits[order[0]]), 0.0
	weights := make([]float64, len(order))
	for i, t := range order {
		weights[i] = math.Exp((float64(logits[t]) - most) / s.o.Temperature)
		sum += weights[i]
	}
	if s.o.TopP < 1 {
		reached, limit := 0.0, s.o.TopP*sum
		for i, w := range weights {
			if reached += w; reached >= limit {
				order, weights, sum = order[:i+1], weights[:i+1], reached
				break
			}
		}
	}
	at := s.random.Float64() * sum
	for i, w := range weights {
		if at -= w; at < 0 {
			return order[i], nil
		}
	}
	return order[0], nil // reached only because of rounding errors in the sum
}
