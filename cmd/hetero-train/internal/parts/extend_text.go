package parts

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/models"
)

// LanguageModel is a network that reads tokens. Configurations select it with model.name.
type LanguageModel struct {
	Name string
	Doc  string // phrase that describes the component in `config docs`
	New  func() LanguageOptions
	// Defaults are the defaults of common keys for this model, such as the learning rate. nil selects AdamW with a
	// warm-up, gradient clipping and a falling learning rate.
	Defaults []config.DefaultValue
}

// LanguageOptions are the keys of table [model] that only one language model has.
type LanguageOptions interface {
	config.Options
	// BuildLanguage returns the network. The parameter vocabulary is the number of token types in the data, and length
	// is the number of tokens in a sample. The program sets the keys and then calls BuildLanguage. An error must
	// describe an invalid setting.
	BuildLanguage(vocabulary, length int) (models.Language, error)
}

// maskedModel is implemented by the options of models that learn to predict masked tokens.
type maskedModel interface {
	LanguageOptions
	// pairs reports whether the model also predicts whether the second text of a sample follows the first one.
	pairs() bool
}

// Masks reports whether the configured model predicts masked tokens. Other text models predict the next token.
func Masks(m *config.Model) bool {
	_, ok := m.Options.(maskedModel)
	return ok
}

// Pairs reports whether the configured model predicts two things: masked tokens, and whether the second text of a
// sample follows the first one.
func Pairs(m *config.Model) bool {
	o, ok := m.Options.(maskedModel)
	return ok && o.pairs()
}

// TokenData is a data set of text. Configurations select it with data.dataset.
type TokenData struct {
	Name   string
	Doc    string // phrase that describes the component in `config docs`
	New    func() TokenDataOptions
	Traits config.DataTraits // properties of the data set that rules of other keys use
}

// TokenDataOptions are the keys of table [data] that only one text data set has.
type TokenDataOptions interface {
	config.Options
	// OpenTokens opens the data set. The program sets the keys and then calls OpenTokens on each rank. OpenTokens must
	// report an error in the data as a *[data.Fault]. If [Masks] reports true for the model in cfg, the samples must
	// have masked tokens. If [Pairs] reports true, they must also be pairs of texts.
	OpenTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (TokenSplits, error)
}

// TokenSplits are the training split and the evaluation split of a data set of text. The fields of the samples are the
// inputs of language.Predict.
type TokenSplits struct {
	Train      data.Samples
	Eval       data.Samples // nil if the data set has no evaluation samples
	Vocabulary int          // number of token types: each token is in [0, Vocabulary)
	Length     int          // number of tokens in a sample
	Classes    []string     // class names of labelled texts; nil: the task is to predict tokens
	Masked     bool         // samples have masked tokens, segments and lengths
	// samples are pairs of texts; their field language.Next states whether the second text follows the first one
	Pairs bool
	// padded lengths below Length for steps of shorter samples; nil: samples are not grouped by length
	Shorter   []int
	Counted   float64        // expected fraction of positions that have a label; 0: all positions have one
	Note      string         // description of the data, which a run prints at its start; may be ""
	Tokenizer string         // name of the tokenizer; "" if it is unknown
	Words     string         // digest of the vocabulary file; "" if the tokenizer has none
	EvalFrom  string         // origin of Eval if it was not split off from the training samples; see data.Splits
	Same      bool           // Train and Eval are the same, because the data set was opened for evaluation only
	Unused    string         // files of a part that neither Train nor Eval contains; "" if there are none
	Identity  string         // digest of the content; "" if the settings alone determine the data
	Print     Fingerprint    // fingerprint without Digest; empty if it is unknown
	Content   data.Content   // stored data, which the machines compare; nil: they compare only Identity
	LeftOut   []data.LeftOut // damaged parts that the run leaves out
	Files     int            // number of files, including those in LeftOut; 0: unknown
	Closer    io.Closer      // frees resources that both splits share; may be nil
}

func (m LanguageModel) addTo(c *config.Catalog) error {
	if m.Defaults == nil {
		m.Defaults = otherRecipe.defaults(false)
	}
	return addKind(&c.Models, "model", config.Kind{Name: m.Name, Doc: m.Doc, Samples: config.Tokens,
		Defaults: m.Defaults}, m.New)
}

func (d TokenData) addTo(c *config.Catalog) error {
	return addKind(&c.DataSets, "data set",
		config.Kind{Name: d.Name, Doc: d.Doc, Data: d.Traits, Samples: config.Tokens}, d.New)
}

// BuildLanguage returns the configured language network.
func BuildLanguage(m *config.Model, vocabulary, length int) (models.Language, error) {
	model, err := m.Options.(LanguageOptions).BuildLanguage(vocabulary, length)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("model %s: %w", m.Name, err))
	}
	return model, nil
}

// builtinTokens are the options of a built-in data set of text.
type builtinTokens interface {
	TokenDataOptions
	formatted
}

// textClassifier is implemented by the options of text models that can also classify texts.
type textClassifier interface {
	LanguageOptions
	// buildTexts is like BuildLanguage, but returns a classifier of texts.
	buildTexts(vocabulary, length int) (models.SequenceClassifier, error)
	// checkPairs returns an error if the model cannot read pairs of texts.
	checkPairs() error
}
