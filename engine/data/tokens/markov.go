package tokens

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/hetero-train/hetero-train/engine/data"
)

// MarkovOptions configures a Markov source.
type MarkovOptions struct {
	Seed       uint64  // seed of the transitions and of the samples
	Vocabulary int     // vocabulary size, 2 to 65,536
	Entropy    float64 // entropy of a token, given the previous token, in nats; above 0, at most ln(Vocabulary)
	Length     int     // number of positions of the longest sample
	// number of positions of the shortest sample; lengths are uniform up to Length; 0: all samples have Length
	Shortest int
	Samples  int // number of samples of this part
	// 0 for training, 1 for evaluation; parts share the transitions, but use different random numbers
	Part int
}

// Markov generates synthetic text from a Markov chain: each token depends only on the previous one.
//
// From state s, the chain moves to state order[(s+j) mod Vocabulary] with probability p[j]. order is a random
// permutation. All states therefore have the same entropy, and all tokens are equally frequent. The entropy rate of the
// chain is the entropy of p. It is the lowest possible mean loss, which a table of the transitions achieves.
//
// Samples have the form of [Windows] samples. Each sample is a separate sequence of the chain.
// The positions after the end of a shorter sample have no label.
type Markov struct {
	o       MarkovOptions
	order   []int32
	limits  []uint64 // ascending; transition j covers the 32-bit numbers from limits[j-1] to limits[j]-1
	entropy float64
}

// NewMarkov returns a source whose entropy is as close as possible to o.Entropy.
func NewMarkov(o MarkovOptions) (*Markov, error) {
	var errs []error
	if o.Vocabulary < 2 || o.Vocabulary > 1<<16 {
		errs = append(errs, fmt.Errorf("Markov source: vocabulary of %d tokens, want 2 to %d", o.Vocabulary, 1<<16))
	} else if most := math.Log(float64(o.Vocabulary)); !(o.Entropy > 0 && o.Entropy <= most) {
		errs = append(errs, fmt.Errorf("Markov source: entropy of %v nats per token, want above 0, at most %.4f, the logarithm of the vocabulary size",
			o.Entropy, most))
	}
	if o.Samples < 1 || o.Samples > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("Markov source: %d samples, want 1 to %d", o.Samples, math.MaxInt32))
	}
	if o.Shortest < 0 || o.Shortest > o.Length {
		errs = append(errs, fmt.Errorf("Markov source: shortest sample: got %d positions, want 1 to %d (the longest sample), or 0 for equal lengths",
			o.Shortest, o.Length))
	}
	if o.Part < 0 || o.Part > 1 {
		errs = append(errs, fmt.Errorf("Markov source: part %d, want 0 or 1", o.Part))
	}
	if err := errors.Join(append(errs, checkLength("Markov source", o.Length, 1))...); err != nil {
		return nil, err
	}
	m := &Markov{o: o, order: make([]int32, o.Vocabulary)}
	r := data.NewRandom(o.Seed, 0, 0, data.ForChain)
	for i := range m.order {
		j := r.Below(i + 1)
		m.order[i] = m.order[j]
		m.order[j] = int32(i)
	}
	m.choose()
	return m, nil
}

// ratioSteps is the number of ratios that choose considers. The grid is coarse enough to make the result independent of
// the last bits of math.Log, which differ between architectures.
const ratioSteps = 1 << 20

// choose sets the transition probabilities. p[j] is proportional to ratio^j, and the entropy grows with the ratio.
func (m *Markov) choose() {
	step := sort.Search(ratioSteps, func(step int) bool {
		_, entropy := geometric(m.o.Vocabulary, float64(step)/ratioSteps)
		return entropy >= m.o.Entropy
	})
	m.limits, m.entropy = geometric(m.o.Vocabulary, float64(step)/ratioSteps)
	if step == 0 {
		return
	}
	if limits, entropy := geometric(m.o.Vocabulary,
		float64(step-1)/ratioSteps); m.o.Entropy-entropy < m.entropy-m.o.Entropy {
		m.limits, m.entropy = limits, entropy
	}
}

// geometric returns the cumulative probabilities of n transitions, in units of 2^-32, and their entropy in nats. The
// probability of transition j is proportional to ratio^j, with ratio from 0 to 1.
func geometric(n int, ratio float64) (limits []uint64, entropy float64) {
	const whole = 1 << 32
	sum, term := 0.0, 1.0
	for range n {
		sum += term
		term = float64(term * ratio)
	}
	limits = make([]uint64, 0, n)
	done, last := 0.0, uint64(0)
	term = 1
	for j := range n {
		done += term
		term = float64(term * ratio)
		limit := min(uint64(float64(done/sum)*whole), whole)
		if j == n-1 {
			limit = whole
		}
		if limit > last { // skip a transition whose probability rounds to 0
			p := float64(limit-last) / whole
			entropy -= p * math.Log(p)
			limits = append(limits, limit)
			last = limit
		}
	}
	return limits, entropy
}

// Entropy returns the entropy of a token, given the previous token, in nats. It is the lowest possible mean loss.
func (m *Markov) Entropy() float64 { return m.entropy }

// least returns the number of positions of the shortest sample.
func least(o MarkovOptions) int {
	if o.Shortest > 0 {
		return o.Shortest
	}
	return o.Length
}

// Length returns the number of positions of sample i without padding.
func (m *Markov) Length(i int) int {
	if m.o.Shortest == 0 {
		return m.o.Length
	}
	r := data.NewRandom(m.o.Seed, m.o.Part, i, data.ForLengths)
	return m.o.Shortest + r.Below(m.o.Length-m.o.Shortest+1)
}

// Len implements [data.Samples].
func (m *Markov) Len() int { return m.o.Samples }

// Layout implements [data.Samples].
func (m *Markov) Layout(*data.Options) (data.Layout, error) {
	return data.Layout{Fields: []data.Field{perPosition(Tokens, m.o.Length), perPosition(Labels, m.o.Length)}}, nil
}

// NewSource implements [data.Samples].
func (m *Markov) NewSource(*data.Options) (data.Source, error) {
	return &markovSource{m, make([]int32, m.o.Length+1)}, nil
}

type markovSource struct {
	*Markov
	buf []int32
}

// Close implements [data.Source].
func (s *markovSource) Close() error { return nil }

// Read implements [data.Source].
func (s *markovSource) Read(span *data.Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		text := s.fill(int(span.Index[j]))
		put(span.Field(0, j), text[:len(text)-1], 0)
		put(span.Field(1, j), text[1:], NoLabel)
		errs[j-span.Lo] = nil
	}
}

// fill returns the tokens of a sample and the label of its last token. They are valid until the next call.
func (s *markovSource) fill(index int) []int32 {
	buf := s.buf[:s.Length(index)+1]
	r := data.NewRandom(s.o.Seed, s.o.Part, index, data.ForMarkov)
	state := r.Below(s.o.Vocabulary)
	buf[0] = int32(state)
	for i := range buf[1:] {
		at := uint64(r.Uint32())
		j := 0
		for s.limits[j] <= at { // usually a few steps, because likely transitions come first
			j++
		}
		state = int(s.order[(state+j)%s.o.Vocabulary])
		buf[1+i] = int32(state)
	}
	return buf
}
