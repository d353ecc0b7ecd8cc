package parts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// MaskedKeys are the keys of text data sets that only masked language models use.
var MaskedKeys = []string{"data.mask_fraction", "data.vocab_file"}

// masked returns the splits for a masked language model.
func (s *syntheticText) masked(train, held tokens.MarkovOptions) (out TokenSplits, err error) {
	source, err := tokens.NewMaskedMarkov(train, s.MaskFraction)
	if err != nil {
		return out, exit.With(exit.Usage, err)
	}
	eval, err := tokens.NewMaskedMarkov(held, s.MaskFraction)
	if err != nil {
		return out, exit.With(exit.Usage, err)
	}
	return TokenSplits{Train: source, Eval: eval, Vocabulary: s.Vocabulary, Length: s.Length, Masked: true,
		Counted: source.Counted(),
		Note: fmt.Sprintf("entropy %.4f nats per token, given the previous one, perplexity %.2f; 4 of the %d tokens are special tokens",
			source.Entropy(), math.Exp(source.Entropy()), s.Vocabulary)}, nil
}

// wordPiece opens the WordPiece vocabulary with which the token files were written.
func (s *textFiles) wordPiece(corpus *tokens.Corpus, model string) (*tokenizer.WordPiece, error) {
	shard := corpus.Shards[0]
	const advice = "want files of hetero-train data tokenize --tokenizer wordpiece --vocab FILE"
	if shard.Tokenizer != "wordpiece" && shard.Tokenizer != "wordpiece-cased" {
		return nil,
			exit.Usagef(
				"model %s predicts masked tokens and needs WordPiece tokens, but the tokens of %s come from %s: %s",
				model, shard.Path, tokenizerName(shard.Tokenizer), advice)
	}
	path := s.VocabFile
	if path == "" {
		path = filepath.Join(filepath.Dir(shard.Path), "vocab.txt")
	}
	w, err := tokenizer.OpenWordPiece(path, shard.Tokenizer == "wordpiece-cased")
	if err != nil {
		return nil, fmt.Errorf("data.vocab_file: %w", err)
	}
	if w.VocabularySum() != shard.VocabularySum || w.Vocabulary() != shard.Vocabulary {
		return nil, exit.Usagef("data.vocab_file: %s (%d tokens) is not the vocabulary of %s (%d tokens): want the file of data tokenize --vocab",
			path, w.Vocabulary(), shard.Path, shard.Vocabulary)
	}
	return w, nil
}

func tokenizerName(name string) string {
	if name == "" {
		return "an unknown tokenizer"
	}
	return "tokenizer " + name
}

// masked returns the samples of a corpus for a masked language model. If the parameter pairs is true, the samples are
// pairs of texts.
func (s *textFiles) masked(ctx context.Context, corpus *tokens.Corpus, w *tokenizer.WordPiece,
	pairs bool) (*tokens.Masked, error) {
	o := tokens.MaskedOptions{Corpus: corpus, Length: s.Length, Specials: w.Specials, MaskFraction: s.MaskFraction,
		NextSentence: pairs}
	for _, end := range []string{".", "!", "?"} {
		if token, ok := w.Token(end); ok {
			o.SentenceEnds = append(o.SentenceEnds, token)
		}
	}
	m, err := tokens.NewMasked(ctx, o)
	if err != nil && !errors.As(err, new(*data.Fault)) && ctx.Err() == nil {
		err = exit.With(exit.Usage, err)
	}
	return m, err
}
