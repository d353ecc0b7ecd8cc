package generate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Checks of models that are not built in.

// uncacheable returns the reason why a user-defined model cannot use a key-value cache, or "".
func (o Options) uncacheable() string {
	g, values, err := o.graph(next, true)
	switch {
	case err != nil:
		return "the pass of one token fails: " + err.Error()
	case values == 0:
		return "the model has no layer Net.Attention"
	}
	at := g.Inputs[0]
	for _, n := range g.Nodes {
		if slices.Contains(n.In, at) && n.Name != lengthsNode {
			return ""
		}
	}
	return "the model does not read Tokens.Positions"
}

// prove checks a user-defined model for texts of up to length tokens. It draws texts of 2, 3, 5, 9, 17, … tokens; these
// lengths are not multiples of a common block size. It computes the logits of the last token again, and compares them:
//
//   - with other padding after the text; a difference is ErrNotCausal
//   - with the keys and values of all other tokens in the cache; after a difference, Next no longer uses the cache
//
// The lengths double, so all checks together take about as long as six passes over the longest text.
func (m *Model) prove(length int) error {
	for m.proved < length {
		n := min(max(2*m.proved-1, 2), m.o.Positions)
		tokens, draw := make([]int32, n), rand.New(rand.NewPCG(uint64(n), 0))
		for i := range tokens {
			tokens[i] = draw.Int32N(int32(m.o.Vocabulary))
		}
		if err := m.proveOn(tokens); err != nil {
			return err
		}
		m.proved = n
	}
	return nil
}

func (m *Model) proveOn(tokens []int32) error {
	m.cached = nil
	n := len(tokens)
	p, err := m.textOf(n)
	if err != nil {
		return err
	}
	want, err := m.run(p, tokens, 0, n-1, nil)
	if err != nil {
		return err
	}
	for _, v := range want {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil // the sampler refuses these logits
		}
	}
	if int64(4*n) < p.tokens.Bytes { // the pass has padding
		got, err := m.run(p, tokens, int32(m.o.Vocabulary-1), n-1, nil)
		if err != nil {
			return err
		}
		if why := differ(want, got, rounding); why != "" {
			return fmt.Errorf("%w: other tokens after a text of %d tokens %s", ErrNotCausal, n, why)
		}
	}
	if m.whole || n == 1 {
		return nil
	}
	if p, err = m.textOf(n - 1); err != nil {
		return err
	}
	if _, err = m.read(p, tokens[:n-1], 0); err != nil || m.whole {
		return err
	}
	got, err := m.read(m.passes[next], tokens, n-1)
	m.cached = nil
	if err != nil {
		return err
	}
	if why := differ(want, got, m.o.cacheRounding()); why != "" {
		m.withoutCache("the keys and values of earlier tokens " + why)
	}
	return nil
}

// errRows reports that a pass does not compute exactly one row of keys and values for each token, in order.
var errRows = errors.New("the keys and values of a text")

// textOf returns the pass for a text of n tokens. If the cache cannot contain the keys and values of this pass, textOf
// ends the use of the cache.
func (m *Model) textOf(n int) (*pass, error) {
	p, err := m.passOf(m.lengthOf(n))
	if m.whole {
		return p, err
	}
	if errors.Is(err, errRows) {
		m.withoutCache(err.Error())
		return m.passOf(m.lengthOf(n))
	}
	if step := m.passes[next]; err == nil && step != nil && !slices.Equal(p.rowBytes, step.rowBytes) {
		m.withoutCache(fmt.Sprintf("%v take %d bytes a token, those of one token %d bytes", errRows, p.rowBytes,
			step.rowBytes))
	}
	return p, err
}

// differ describes the difference of two rows of logits, or returns "" if it is at most the tolerance. Adding a number
// to all logits does not change the probabilities. differ therefore subtracts the mean of each row first.
func differ(want, got []float32, tolerance float64) string {
	var mean, other, most, scale, largest float64
	for i := range want {
		mean += float64(want[i]) / float64(len(want))
		other += float64(got[i]) / float64(len(want))
	}
	for i := range want {
		most = max(most, math.Abs(float64(want[i])-mean-float64(got[i])+other))
		scale, largest = max(scale, math.Abs(float64(want[i])-mean)), max(largest, math.Abs(float64(want[i])))
	}
	if most <= tolerance*scale+lastBits*largest {
		return ""
	}
	return fmt.Sprintf("change a score by %.3g; the scores differ from their mean by at most %.3g", most, scale)
}

// rounding is the largest influence of padding on a causal model, relative to the largest distance of a logit from the
// mean. With exact numbers, masked positions have no influence. A mask that adds a large negative number may leave
// rounding errors.
const rounding = 1e-3

// lastBits is the allowed rounding error of an f32 logit: eight units in the last place.
const lastBits = 8.0 / (1 << 24)

// cacheRounding is the largest influence of the cache, which computes the same sums in another order. Types of 16 bits
// round each activation.
func (o Options) cacheRounding() float64 {
	if o.Compute.Size() == 2 {
		return 0.05
	}
	return rounding
}

// ErrNotCausal reports that the logits of a token depend on the tokens after it.
var ErrNotCausal = errors.New("generate: the model is not causal")
