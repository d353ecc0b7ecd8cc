package program

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// bigram predicts the next token from a table of the current token only.
type bigram struct{ Channels int }

func (o *bigram) Keys() []config.Key {
	return []config.Key{config.Int(&o.Channels, "channels", 8).Shapes().AtLeast(1).Doc("Channels of a token.")}
}

func (o *bigram) BuildLanguage(vocabulary, _ int) (models.Language, error) {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		table := net.Table("table", vocabulary, o.Channels, 0.5)
		h := net.Graph.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute) // (N, T, C)
		return models.Prediction{Rows: net.Rows(net.Projection("hidden", h, o.Channels, 0.5)), Weight: table}
	}, nil
}

// chain is a data set whose text is computed.
type chain struct{ Words int }

func (o *chain) Keys() []config.Key {
	return []config.Key{config.Int(&o.Words, "words", 6).Shapes().AtLeast(2).Doc("Number of different tokens.")}
}

func (o *chain) OpenTokens(_ context.Context, cfg *config.Config, _ *slog.Logger) (TokenSplits, error) {
	source, err := tokens.NewMarkov(tokens.MarkovOptions{Seed: cfg.Experiment.Seed, Vocabulary: o.Words, Entropy: 0.2,
		Length: 10, Samples: 64})
	return TokenSplits{Train: source, Eval: source, Vocabulary: o.Words, Length: 10}, err
}

// A language model and a data set of text from another program must train and evaluate like built-in components.
func TestAddedPartsOfTextTrain(t *testing.T) {
	own := []Part{
		LanguageModel{Name: "bigram", Doc: "a table of the current token", New: func() LanguageOptions {
			return new(bigram)
		}},
		TokenData{Name: "chain", Doc: "computed text", New: func() TokenDataOptions { return new(chain) },
			Traits: config.DataTraits{Computed: true}},
	}
	dir := t.TempDir()
	args := []string{"--set", "device.kind=reference", "--set", "model.name=bigram", "--set", "data.dataset=chain",
		"--set", "data.batch_size=8", "--set", "train.epochs=2",
		"--set", "experiment.output_dir=" + dir, "--set", "experiment.name=run"}
	code, out, messages := extended(own, args...)
	if code != exit.Done || !strings.Contains(out, "perplexity") || !strings.Contains(out, "tok/s") {
		t.Fatalf("got exit code %d: %s\n%s", code, messages, out)
	}
	for _, c := range []struct {
		args       []string
		code       int
		says, text string
	}{
		{[]string{"eval"}, exit.Done, "", "perplexity"},
		{[]string{"predict", "-"}, exit.Usage, "does not name its tokenizer", ""}, // the tokens of chain are not text
		{[]string{"generate"}, exit.Usage, "does not name its tokenizer", ""},
	} {
		line := append([]string{c.args[0], filepath.Join(dir, "run")}, c.args[1:]...)
		code, shown, messages := extended(own, line...)
		if code != c.code || !strings.Contains(messages, c.says) || !strings.Contains(shown, c.text) ||
			strings.Contains(messages, "image") {
			t.Errorf("%s: got exit code %d: %s\n%s", c.args[0], code, messages, shown)
		}
	}
	if code, _, messages := extended(own, append(args, "--set", "data.dataset=squares")...); code != exit.Usage {
		t.Errorf("an unknown data set: got exit code %d: %s", code, messages)
	}
}
