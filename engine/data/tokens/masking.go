package tokens

import (
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// usualMaskFraction is the fraction of masked tokens in BERT's pre-training.
const usualMaskFraction = 0.15

// masking masks tokens as in BERT's pre-training.
type masking struct {
	specials   tokenizer.Specials
	vocabulary int     // vocabulary size
	fraction   float64 // fraction of the ordinary tokens that get a label
	places     []int32 // positions of the ordinary tokens
}

// countMasks returns the number of labels of a sample with n ordinary tokens.
func countMasks(n int, fraction float64) int {
	return min(max(int(float64(n)*fraction+0.5), 1), n)
}

// mask chooses the tokens that the model must predict, replaces most of them, and sets their labels.
func (m *masking) mask(r *data.Random, tokens, labels []int32) {
	places := m.places[:0]
	for i, t := range tokens {
		if t != m.specials.Class && t != m.specials.Separator {
			places = append(places, int32(i))
		}
	}
	for i := range countMasks(len(places), m.fraction) { // first steps of a Fisher-Yates shuffle
		k := i + r.Below(len(places)-i)
		places[i], places[k] = places[k], places[i]
		at := places[i]
		labels[at] = tokens[at]
		switch u := r.Below(10); {
		case u < 8:
			tokens[at] = m.specials.Mask
		case u == 8:
			tokens[at] = int32(r.Below(m.vocabulary))
		}
	}
}
