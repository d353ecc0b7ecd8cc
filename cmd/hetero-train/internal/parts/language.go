package parts

import (
	"cmp"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/weights"
)

func gpt2Model(name, published, size string) LanguageModel {
	return LanguageModel{name, "GPT-2 as OpenAI published it, " + size + " with its 50,257 tokens and 1,024 positions",
		func() LanguageOptions { return &gpt2Options{size: gpt2.Family[published]} }}
}

// gpt2Options are the keys of the GPT-2 family. A key with value 0 selects the size of the published model.
type gpt2Options struct {
	size gpt2.Size

	Layers, Heads, Channels int
	Vocabulary, Positions   int
	Dropout                 float64
}

// Ignores implements [config.Ignorer].
func (*gpt2Options) Ignores() []string {
	return []string{"batch_norm", "ghost_group", "init_head", "num_classes"}
}

// Keys implements [config.Options].
func (o *gpt2Options) Keys() []config.Key {
	return []config.Key{
		config.Int(&o.Layers, "layers", 0).Learnt().Shapes().Unit("layers").AtMost(1000).
			Doc("Number of transformer blocks. 0: as in the published model."),
		config.Int(&o.Heads, "heads", 0).Learnt().Shapes().Unit("heads").AtMost(1000).
			Doc("Number of attention heads, a divisor of `embedding_size`. 0: as in the published model."),
		config.Int(&o.Channels, "embedding_size", 0).Learnt().Shapes().Unit("channels").AtMost(1 << 16).
			Doc("Channels of a token. 0: as in the published model."),
		config.Int(&o.Vocabulary, "vocabulary_size", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 24).
			Doc("Number of different tokens. 0: as in the data set."),
		config.Int(&o.Positions, "positions", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 20).
			Doc("Longest sample that the model can read. 0: the length of the samples of the data set."),
		config.Float(&o.Dropout, "dropout", 0.1).Learnt().Below(1).
			Doc("Dropout: training sets this fraction to zero in the embeddings, the attention weights and the output of each residual branch."),
	}
}

// sizes returns the sizes of the network. vocabulary is the number of token types in the data, length the number of
// tokens in a sample.
func (o *gpt2Options) sizes(vocabulary, length int) gpt2.Size {
	return gpt2.Size{Vocabulary: cmp.Or(o.Vocabulary, vocabulary), Positions: cmp.Or(o.Positions, length), Layers: cmp.Or(o.Layers, o.size.Layers),
		Heads: cmp.Or(o.Heads, o.size.Heads), Channels: cmp.Or(o.Channels, o.size.Channels)}
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
	s.VocabSize, s.NPositions, s.NEmbd, s.NLayer, s.NHead = size.Vocabulary, size.Positions, size.Channels, size.Layers, size.Heads
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
		return // CompareSettings reports that config.json describes another kind of model
	}
	for _, size := range []struct {
		own   *int
		their int
	}{{&o.Layers, s.NLayer}, {&o.Heads, s.NHead}, {&o.Channels, s.NEmbd}, {&o.Vocabulary, s.VocabSize}, {&o.Positions, s.NPositions}} {
		if *size.own == 0 {
			*size.own = size.their
		}
	}
}

// BuildLanguage implements [LanguageOptions].
func (o *gpt2Options) BuildLanguage(vocabulary, length int) (models.Language, error) {
	s := o.sizes(vocabulary, length)
	switch {
	case s.Channels%s.Heads != 0:
		return nil, fmt.Errorf("model.embedding_size: got %d channels for %d heads (model.heads), want a multiple", s.Channels, s.Heads)
	case s.Vocabulary < vocabulary:
		return nil, fmt.Errorf("model.vocabulary_size: got %d, want at least the %d tokens of the data set", s.Vocabulary, vocabulary)
	case s.Positions < length:
		return nil, fmt.Errorf("model.positions: got %d, want at least the %d positions of a sample (data.sequence_length)", s.Positions, length)
	}
	return gpt2.Build(s, gpt2.Options{EmbeddingDropout: o.Dropout, AttentionDropout: o.Dropout, ResidualDropout: o.Dropout}), nil
}
