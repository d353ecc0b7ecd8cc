package parts

import (
	"context"
	"errors"
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
	Doc  string // one phrase for `config docs`
	New  func() LanguageOptions
}

// LanguageOptions are the keys that only one language model has, in [model].
type LanguageOptions interface {
	config.Options
	// BuildLanguage returns the model for samples of length positions, with tokens below vocabulary. It is called when
	// the keys are set. Its error is one of the settings.
	BuildLanguage(vocabulary, length int) (models.Language, error)
}

// TokenData is a data set of text. Configurations select it with data.dataset.
type TokenData struct {
	Name   string
	Doc    string // one phrase for `config docs`
	New    func() TokenDataOptions
	Traits config.DataTraits // properties that other keys of a configuration depend on
}

// TokenDataOptions are the keys that only one data set of text has, in [data].
type TokenDataOptions interface {
	config.Options
	// OpenTokens is called when the keys are set, on each rank. An error that the data cause is a *[data.Fault].
	OpenTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (TokenSplits, error)
}

// TokenSplits are the two parts of a data set of text. The fields of their samples are the inputs of language.Predict.
type TokenSplits struct {
	Train      data.Samples
	Eval       data.Samples // nil without samples for evaluation
	Vocabulary int          // tokens are below it
	Length     int          // positions of a sample
	Note       string       // about the data, for the start of a run; may be ""
	Tokenizer  string       // name of the tokenizer; "" if it is unknown
	Identity   string       // digest of the content; "" if the data are functions of the settings
	Closer     io.Closer    // frees resources that both parts use; may be nil
}

func (m LanguageModel) addTo(c *config.Catalog) error {
	return addKind(&c.Models, "model", config.Kind{Name: m.Name, Doc: m.Doc, Samples: config.Tokens}, m.New)
}

func (d TokenData) addTo(c *config.Catalog) error {
	return addKind(&c.DataSets, "data set", config.Kind{Name: d.Name, Doc: d.Doc, Data: d.Traits, Samples: config.Tokens}, d.New)
}

// openTokens opens the configured data set of text.
func openTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Opened, error) {
	splits, err := cfg.Data.Options.(TokenDataOptions).OpenTokens(ctx, cfg, log)
	if errors.As(err, new(*data.Fault)) {
		err = exit.With(exit.Data, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", cfg.Data.Dataset, err)
	}
	return &Opened{Name: cfg.Data.Dataset, Tokens: &splits, Identity: splits.Identity}, nil
}

// Close frees files and memory.
func (o *Opened) Close() error {
	if o.Tokens == nil {
		return o.Splits.Close()
	}
	if o.Tokens.Closer == nil {
		return nil
	}
	return o.Tokens.Closer.Close()
}

// Counts returns the numbers of samples for training and for evaluation.
func (o *Opened) Counts() (train, eval int) {
	if t := o.Tokens; t != nil {
		if t.Eval != nil {
			eval = t.Eval.Len()
		}
		return t.Train.Len(), eval
	}
	if o.Eval != nil {
		eval = o.Eval.Len()
	}
	return o.Train.Len(), eval
}

// HasEval reports whether there are samples for evaluation.
func (o *Opened) HasEval() bool {
	_, eval := o.Counts()
	return eval > 0
}

// Classes returns the names of the classes; nil for text.
func (o *Opened) Classes() []string {
	if o.Tokens != nil {
		return nil
	}
	return o.Train.Classes()
}

// BuildClassifier returns the network of images that a configuration selects. Its error is one of the usage.
func BuildClassifier(m *config.Model) (models.Classifier, error) {
	o, ok := m.Options.(ModelOptions)
	if !ok {
		return nil, exit.Usagef("model %s reads %v: this command supports models of images only", m.Name, m.Samples)
	}
	return o.Build(), nil
}

// BuildLanguage returns the network of text that a configuration selects.
func BuildLanguage(m *config.Model, vocabulary, length int) (models.Language, error) {
	model, err := m.Options.(LanguageOptions).BuildLanguage(vocabulary, length)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("model %s: %w", m.Name, err))
	}
	return model, nil
}
