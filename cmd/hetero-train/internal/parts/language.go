package parts

import (
	"cmp"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/weights"
)

func gpt2Model(name, published, size string) LanguageModel {
	return LanguageModel{name, "GPT-2 as OpenAI published it, " + size + " with its 50,257 tokens and 1,024 positions",
		func() LanguageOptions { return &gpt2Options{size: gpt2.Family[published]} },
		gpt2Recipes[published].defaults(true)}
}

// gpt2Options are the keys of table [model] for the GPT-2 family. A size of 0 selects the size of the published model.
type gpt2Options struct {
	size gpt2.Size

	transformerSizes
	Dropout float64
}

// Ignores implements [config.Ignorer].
func (*gpt2Options) Ignores() []string {
	return []string{"batch_norm", "ghost_group", "init_head", "num_classes"}
}

// Keys implements [config.Options].
func (o *gpt2Options) Keys() []config.Key {
	return append(o.transformerSizes.keys(gpt2.Activation),
		config.Float(&o.Dropout, "dropout", 0.1).Learnt().Below(1).
			Doc("Dropout: training sets this fraction to zero in the embeddings, the attention weights and the output of each residual branch."))
}

// sizes returns the sizes of the network. The parameter vocabulary is the number of token types in the data, and length
// is the number of tokens in a sample.
func (o *gpt2Options) sizes(vocabulary, length int) gpt2.Size {
	return gpt2.Size{Vocabulary: cmp.Or(o.Vocabulary, vocabulary), Positions: cmp.Or(o.Positions, length),
		Layers: cmp.Or(o.Layers, o.size.Layers),
		Heads:  cmp.Or(o.Heads, o.size.Heads), Channels: cmp.Or(o.Channels, o.size.Channels), Inner: o.Inner,
		Activation: o.Activation, Eps: o.NormEps}
}

// Published implements [Transformer].
func (o *gpt2Options) Published() (vocabulary, positions int) {
	return cmp.Or(o.Vocabulary, o.size.Vocabulary), cmp.Or(o.Positions, o.size.Positions)
}

// Tables implements [Transformer].
func (*gpt2Options) Tables() (tokens, positions string) {
	return "transformer.wte.weight", "transformer.wpe.weight"
}

// Settings implements [Transformer].
func (o *gpt2Options) Settings(vocabulary, positions int) weights.Settings {
	size, s := o.sizes(vocabulary, positions), weights.NewGPT2Settings()
	s.VocabSize, s.NPositions, s.NEmbd, s.NLayer, s.NHead = size.Vocabulary, size.Positions, size.Channels, size.Layers,
		size.Heads
	s.ActivationFunction, s.LayerNormEpsilon = cmp.Or(size.Activation, gpt2.Activation), cmp.Or(size.Eps, gpt2.Eps)
	if size.Inner != 0 && size.Inner != 4*size.Channels {
		s.NInner = &size.Inner
	}
	if end := s.VocabSize - 1; s.VocabSize == gpt2.Family["gpt2"].Vocabulary {
		s.BOSTokenID, s.EOSTokenID = &end, &end // <|endoftext|>
	}
	s.EmbdPdrop, s.AttnPdrop, s.ResidPdrop = o.Dropout, o.Dropout, o.Dropout
	return s
}

// Adopt implements [Transformer].
func (o *gpt2Options) Adopt(settings weights.Settings) {
	s, ok := settings.(*weights.GPT2Settings)
	if !ok {
		return // another kind of model, which CompareSettings reports
	}
	o.adopt(transformerSizes{Layers: s.NLayer, Heads: s.NHead, Channels: s.NEmbd, Vocabulary: s.VocabSize,
		Positions: s.NPositions,
		Inner:     s.Inner(), Activation: s.ActivationFunction, NormEps: s.LayerNormEpsilon})
}

// BuildLanguage implements [LanguageOptions].
func (o *gpt2Options) BuildLanguage(vocabulary, length int) (models.Language, error) {
	s := o.sizes(vocabulary, length)
	if err := checkSizes(s.Channels, s.Heads, s.Vocabulary, s.Positions, vocabulary, length); err != nil {
		return nil, err
	}
	return gpt2.Build(s, gpt2.Options{EmbeddingDropout: o.Dropout, AttentionDropout: o.Dropout,
		ResidualDropout: o.Dropout}), nil
}
