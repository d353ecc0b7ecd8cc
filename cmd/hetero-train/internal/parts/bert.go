package parts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/bert"
	"github.com/hetero-train/hetero-train/engine/weights"
)

func bertModel(name, size string) LanguageModel {
	return LanguageModel{name, "BERT as Google published it, " + size + " with its 30,522 tokens and 512 positions",
		func() LanguageOptions { return &bertOptions{size: bert.Family[name]} }, bertRecipe.defaults(true)}
}

// bertOptions are the keys of table [model] for the BERT family. A size of 0 selects the size of the published model.
type bertOptions struct {
	size bert.Size

	transformerSizes
	Segments     int
	Dropout      float64
	NextSentence bool
}

// Ignores implements [config.Ignorer].
func (*bertOptions) Ignores() []string {
	return []string{"batch_norm", "ghost_group"}
}

// Keys implements [config.Options].
func (o *bertOptions) Keys() []config.Key {
	return append(o.transformerSizes.keys(bert.Activation),
		config.Int(&o.Segments, "segments", 0).Learnt().Shapes().Unit("segments").AtMost(1<<10).
			Doc("Kinds of segments (`type_vocab_size` of `transformers`). Pairs of texts need 2. 0: as in the published model."),
		config.Float(&o.Dropout, "dropout", 0.1).Learnt().Below(1).
			Doc("Dropout: training sets this fraction to zero in the embeddings, the attention weights and the output of each residual branch."),
		config.Bool(&o.NextSentence, "next_sentence", false).Learnt().Shapes().
			Doc("Adds a classifier that predicts whether the second text of a sample follows the first one, as in BERT's pre-training. Samples are then pairs of texts; half of the second texts come from another document. Needs `data.dataset=text` with at least two documents."))
}

// pairs implements [maskedModel].
func (o *bertOptions) pairs() bool { return o.NextSentence }

// sizes returns the sizes of the network. The parameter vocabulary is the number of token types in the data, and length
// is the number of tokens in a sample.
func (o *bertOptions) sizes(vocabulary, length int) bert.Size {
	return bert.Size{Vocabulary: cmp.Or(o.Vocabulary, vocabulary), Positions: cmp.Or(o.Positions, length),
		Segments: o.segments(), Layers: cmp.Or(o.Layers, o.size.Layers),
		Heads: cmp.Or(o.Heads, o.size.Heads), Channels: cmp.Or(o.Channels, o.size.Channels), Inner: o.Inner,
		Activation: o.Activation, Eps: o.NormEps}
}

// Published implements [Transformer].
func (o *bertOptions) Published() (vocabulary, positions int) {
	return cmp.Or(o.Vocabulary, o.size.Vocabulary), cmp.Or(o.Positions, o.size.Positions)
}

// Tables implements [Transformer].
func (*bertOptions) Tables() (tokens, positions string) {
	return "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight"
}

// Settings implements [Transformer].
func (o *bertOptions) Settings(vocabulary, positions int) weights.Settings {
	size, s := o.sizes(vocabulary, positions), weights.NewBERTSettings()
	s.VocabSize, s.MaxPositionEmbeddings, s.TypeVocabSize, s.HiddenSize, s.NumHiddenLayers, s.NumAttentionHeads =
		size.Vocabulary, size.Positions, size.Segments, size.Channels, size.Layers, size.Heads
	s.IntermediateSize, s.HiddenAct, s.LayerNormEps = cmp.Or(size.Inner, 4*size.Channels),
		cmp.Or(size.Activation, bert.Activation), cmp.Or(size.Eps, bert.Eps)
	s.HiddenDropoutProb, s.AttentionProbsDropProb = o.Dropout, o.Dropout
	if o.NextSentence {
		s.SetPreTraining()
	}
	return s
}

// Adopt implements [Transformer].
func (o *bertOptions) Adopt(settings weights.Settings) {
	s, ok := settings.(*weights.BERTSettings)
	if !ok {
		return // another kind of model, which CompareSettings reports
	}
	o.adopt(transformerSizes{Layers: s.NumHiddenLayers, Heads: s.NumAttentionHeads, Channels: s.HiddenSize,
		Vocabulary: s.VocabSize, Positions: s.MaxPositionEmbeddings,
		Inner: s.IntermediateSize, Activation: s.HiddenAct, NormEps: s.LayerNormEps})
	o.Segments = cmp.Or(o.Segments, s.TypeVocabSize)
}

// BuildLanguage implements [LanguageOptions].
func (o *bertOptions) BuildLanguage(vocabulary, length int) (models.Language, error) {
	s := o.sizes(vocabulary, length)
	if err := checkSizes(s.Channels, s.Heads, s.Vocabulary, s.Positions, vocabulary, length); err != nil {
		return nil, err
	}
	if o.NextSentence {
		if err := o.checkPairs(); err != nil {
			return nil, err
		}
	}
	options := o.options()
	options.NextSentence = o.NextSentence
	return bert.Build(s, options), nil
}

// buildTexts implements textClassifier.
func (o *bertOptions) buildTexts(vocabulary, length int) (models.SequenceClassifier, error) {
	s := o.sizes(vocabulary, length)
	if err := checkSizes(s.Channels, s.Heads, s.Vocabulary, s.Positions, vocabulary, length); err != nil {
		return nil, err
	}
	return bert.BuildClassifier(s, o.options()), nil
}

func (o *bertOptions) options() bert.Options {
	return bert.Options{HiddenDropout: o.Dropout, AttentionDropout: o.Dropout}
}

// segments returns the number of rows of the segment table.
func (o *bertOptions) segments() int { return cmp.Or(o.Segments, o.size.Segments) }

// checkPairs implements textClassifier.
func (o *bertOptions) checkPairs() error {
	if n := o.segments(); n < 2 {
		return fmt.Errorf("model.segments: got %d, want at least 2 for pairs of texts", n)
	}
	return nil
}

// transformerSizes are the keys that all transformer models have. If a key has its zero value, the value comes from the
// published model or from the data.
type transformerSizes struct {
	Layers, Heads, Channels int
	Vocabulary, Positions   int
	Inner                   int
	Activation              string
	NormEps                 float64
}

// keys returns the keys. The parameter activation names the activation function of the published model.
func (t *transformerSizes) keys(activation string) []config.Key {
	return []config.Key{
		config.Int(&t.Layers, "layers", 0).Learnt().Shapes().Unit("layers").AtMost(1000).
			Doc("Number of transformer blocks. 0: as in the published model."),
		config.Int(&t.Heads, "heads", 0).Learnt().Shapes().Unit("heads").AtMost(1000).
			Doc("Number of attention heads, a divisor of `embedding_size`. 0: as in the published model."),
		config.Int(&t.Channels, "embedding_size", 0).Learnt().Shapes().Unit("channels").AtMost(1 << 16).
			Doc("Channels of a token. 0: as in the published model."),
		config.Int(&t.Vocabulary, "vocabulary_size", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 24).
			Doc("Number of different tokens. 0: as in the data set."),
		config.Int(&t.Positions, "positions", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 20).
			Doc("Longest sample that the model can read. 0: the length of the samples of the data set."),
		config.Int(&t.Inner, "inner_size", 0).Learnt().Shapes().Unit("channels").AtMost(1 << 18).
			Doc("Channels of the feed-forward layers. 0: 4 times `embedding_size`."),
		config.Choice(&t.Activation, "activation", "", append([]string{""}, models.Activations()...)...).Learnt().
			Doc("Activation function of the feed-forward layers: `gelu` (exact), `gelu_new` (approximation by tanh) or `relu`. Empty: `" +
				activation + "`, as in the published model."),
		config.Float(&t.NormEps, "norm_eps", 0).Learnt().AtMost(1).
			Doc("Number that LayerNorm adds to the variance. 0: as in the published model."),
	}
}

// adopt sets each unset key to the value of this key in given.
func (t *transformerSizes) adopt(given transformerSizes) {
	for own, value := range map[*int]int{&t.Layers: given.Layers, &t.Heads: given.Heads, &t.Channels: given.Channels,
		&t.Vocabulary: given.Vocabulary,
		&t.Positions:  given.Positions, &t.Inner: given.Inner} {
		*own = cmp.Or(*own, value)
	}
	t.NormEps = cmp.Or(t.NormEps, given.NormEps)
	// CompareSettings reports unsupported activations.
	if slices.Contains(models.Activations(), given.Activation) {
		t.Activation = cmp.Or(t.Activation, given.Activation)
	}
}

// checkSizes returns an error if the sizes of a model are inconsistent or too small for the data. The parameter
// vocabulary is the number of token types in the data, and length is the number of tokens in a sample.
func checkSizes(channels, heads, tokens, positions, vocabulary, length int) error {
	switch {
	case channels%heads != 0:
		return fmt.Errorf("model.embedding_size: got %d channels for %d heads (model.heads), want a multiple", channels,
			heads)
	case tokens < vocabulary:
		return fmt.Errorf("model.vocabulary_size: got %d, want at least the %d tokens of the data set", tokens,
			vocabulary)
	case positions < length:
		return fmt.Errorf("model.positions: got %d, want at least the %d positions of a sample (data.sequence_length)",
			positions, length)
	}
	return nil
}
