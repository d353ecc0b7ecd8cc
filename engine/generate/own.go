package generate

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Checks of models that are not built in.

// uncacheable returns why an own model cannot use a key-value cache, or "".
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

// text returns the logits of the token that follows a text, of which it reads all tokens. If keep is set, it puts keys and
// values into the cache. The first pass of an own model with padding runs twice, with another padding, to find out
// whether the model is causal.
func (m *Model) text(tokens []int32, keep bool) ([]float32, error) {
	p, err := m.passOf(m.lengthOf(len(tokens)))
	if err != nil {
		return nil, err
	}
	var logits []float32
	if keep {
		logits, err = m.read(p, tokens, 0)
	} else {
		logits, err = m.run(p, tokens, 0, len(tokens)-1, nil)
	}
	if err != nil || !m.o.Own || m.causal || int64(4*len(tokens)) == p.tokens.Bytes {
		return logits, err
	}
	other, err := m.run(p, tokens, int32(m.o.Vocabulary-1), len(tokens)-1, nil)
	if err != nil {
		return nil, err
	}
	if differ, largest := difference(logits, other); differ > rounding*largest {
		m.cached = nil
		return nil, fmt.Errorf("%w: other tokens after the text change a score by %.3g; the largest score is %.3g", ErrNotCausal, differ, largest)
	}
	m.causal = true
	return logits, nil
}

// proofs is the number of tokens for which Next compares the cache of an own model with a pass over the whole text.
const proofs = 3

// step returns the logits of the token that follows a text, all but the last token of which are in the cache.
func (m *Model) step(tokens []int32) ([]float32, error) {
	p, err := m.passOf(next)
	if err != nil {
		return nil, err
	}
	logits, err := m.read(p, tokens, len(tokens)-1)
	if err != nil || !m.o.Own || m.proved == proofs {
		return logits, err
	}
	m.proved++
	want, err := m.text(tokens, false)
	if err != nil {
		return nil, err
	}
	if differ, largest := difference(want, logits); !(differ <= m.o.cacheRounding()*largest) {
		m.withoutCache(fmt.Sprintf("the keys and values of earlier tokens change a score by %.3g; the largest score is %.3g", differ, largest))
	}
	return want, nil
}

// difference returns the largest difference of two rows of logits, and the largest logit of the first one.
func difference(logits, other []float32) (differ, largest float64) {
	for i, v := range logits {
		largest, differ = max(largest, math.Abs(float64(v))), max(differ, math.Abs(float64(v-other[i])))
	}
	return differ, largest
}

// rounding is the largest influence of padding on a causal model, relative to the largest logit. Masked positions have
// no influence in exact numbers; a mask that adds a large negative number may leave rounding errors.
const rounding = 1e-3

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
