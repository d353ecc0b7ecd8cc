package generate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
	for i, l := range logits {
		if l-l != 0 {
			return 0, fmt.Errorf("the model's score of token %d is %g", i, l)
		}
	}
	if len(logits) == 0 {
		return 0, errors.New("got no scores")
	}
	r := newRanking(logits)
	if s.o.Temperature == 0 {
		return r.token(0), nil
	}
	most := float64(logits[r.token(0)])
	weight := func(token int32) float64 { return math.Exp((float64(logits[token]) - most) / s.o.Temperature) }
	n, sum := len(logits), 0.0 // number of tokens from which to draw, and the sum of their weights
	if s.o.TopK > 0 && s.o.TopK < n {
		n = s.o.TopK
		for i := range n {
			sum += weight(r.token(i))
		}
	} else {
		for token := range logits {
			sum += weight(int32(token))
		}
	}
	if s.o.TopP < 1 {
		reached, limit := 0.0, s.o.TopP*sum
		for i := range n {
			if reached += weight(r.token(i)); reached >= limit {
				n, sum = i+1, reached
				break
			}
		}
	}
	at := s.random.Float64() * sum
	for i := range n {
		if at -= weight(r.token(i)); at < 0 {
			return r.token(i), nil
		}
	}
	return r.token(0), nil // only reached because of rounding errors in the sum
}

// ranking lists tokens, the most likely first. It sorts only the tokens that a draw needs, usually few of a large
// vocabulary.
type ranking struct {
	logits []float32
	heap   []int32 // the other tokens; a token is at least as likely as those at 2i+1 and 2i+2
	ranked []int32
}

func newRanking(logits []float32) *ranking {
	r := &ranking{logits: logits, heap: make([]int32, len(logits))}
	for i := range r.heap {
		r.heap[i] = int32(i)
	}
	for i := len(r.heap)/2 - 1; i >= 0; i-- {
		r.down(i)
	}
	return r
}

// token returns the token of a rank, from 0.
func (r *ranking) token(rank int) int32 {
	for len(r.ranked) <= rank {
		last := len(r.heap) - 1
		r.ranked = append(r.ranked, r.heap[0])
		r.heap[0], r.heap = r.heap[last], r.heap[:last]
		r.down(0)
	}
	return r.ranked[rank]
}

// down moves the token at i below all tokens that are more likely.
func (r *ranking) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(r.heap) {
			return
		}
		if child+1 < len(r.heap) && r.before(r.heap[child+1], r.heap[child]) {
			child++
		}
		if !r.before(r.heap[child], r.heap[i]) {
			return
		}
		r.heap[i], r.heap[child] = r.heap[child], r.heap[i]
		i = child
	}
}

func (r *ranking) before(a, b int32) bool {
	return r.logits[a] > r.logits[b] || r.logits[a] == r.logits[b] && a < b
}
