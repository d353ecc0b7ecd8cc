package parts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// Default numbers of samples of synthetic text.
const (
	textTrainSamples = 10_000
	textEvalSamples  = 1_000
)

// OpenTokens implements [TokenDataOptions].
func (s *syntheticText) OpenTokens(_ context.Context, cfg *config.Config, _ *slog.Logger) (TokenSplits, error) {
	train := cmp.Or(cfg.Data.NumSamples, textTrainSamples)
	if s.Shortest > s.Length {
		return TokenSplits{}, exit.Usagef("data.min_sequence_length: got %d, want at most data.sequence_length, %d",
			s.Shortest, s.Length)
	}
	o := tokens.MarkovOptions{Seed: cfg.Experiment.Seed, Vocabulary: s.Vocabulary, Entropy: s.Entropy, Length: s.Length,
		Shortest: s.Shortest, Samples: train}
	evaluated := o
	evaluated.Samples, evaluated.Part = min(train, textEvalSamples), 1
	if Masks(&cfg.Model) {
		out, err := s.masked(o, evaluated)
		if s.Group && err == nil {
			out.Shorter = shorterLengths(out.Train, s.Length)
		}
		return out, err
	}
	source, err := tokens.NewMarkov(o)
	if err != nil {
		return TokenSplits{}, exit.With(exit.Usage, err)
	}
	held, err := tokens.NewMarkov(evaluated)
	if err != nil {
		return TokenSplits{}, exit.With(exit.Usage, err)
	}
	out := TokenSplits{Train: source, Eval: held, Vocabulary: s.Vocabulary, Length: s.Length,
		Note: fmt.Sprintf("entropy %.4f nats per token, perplexity %.2f: no model can have a lower loss",
			source.Entropy(), math.Exp(source.Entropy()))}
	if s.Group {
		out.Shorter = shorterLengths(source, s.Length)
	}
	return out, nil
}

// OpenTokens implements [TokenDataOptions].
func (s *textFiles) OpenTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (out TokenSplits, err error) {
	if err := s.check(); err != nil {
		return out, err
	}
	found, err := s.find(&cfg.Data)
	if err != nil {
		return out, err
	}
	return s.openFound(ctx, cfg, log, found)
}

// openFound opens the token files of both parts.
func (s *textFiles) openFound(ctx context.Context, cfg *config.Config, log *slog.Logger, found tokens.Found) (
	out TokenSplits, err error) {
	files := &corpora{open: tokens.OpenOptions{TokenBytes: s.TokenBytes}}
	if cfg.Data.Corrupt == "skip" {
		files.open.LeftOut = &files.left
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, files.Close())
		}
	}()
	train, err := files.openAll(found.Train, s.Vocabulary)
	if err != nil {
		return out, err
	}
	vocabulary := cmp.Or(s.Vocabulary, train.Shards[0].Vocabulary)
	if vocabulary == 0 {
		return out,
			exit.Usagef(
				"data.vocabulary: %s has no header that states the number of different tokens; set data.vocabulary",
				train.Shards[0].Path)
	}
	out = TokenSplits{Train: tokens.Windows{Corpus: train, Length: s.Length}, Vocabulary: vocabulary, Length: s.Length,
		EvalFrom: found.EvalFrom, Same: slices.Equal(found.Train, found.Eval), Unused: found.Unused, Closer: files}
	var words *tokenizer.WordPiece
	if Masks(&cfg.Model) {
		if words, err = s.wordPiece(train, cfg.Model.Name); err != nil {
			return out, err
		}
		out.Pairs = Pairs(&cfg.Model)
		masked, err := s.masked(ctx, train, words, out.Pairs)
		if err != nil {
			return out, err
		}
		out.Train, out.Masked, out.Counted = masked, true, masked.Counted()
		if s.Group {
			out.Shorter = shorterLengths(masked, s.Length)
		}
	}
	out.Note = fmt.Sprintf("%d training tokens", train.Len())
	if len(found.Eval) > 0 {
		held, err := files.openAll(found.Eval, vocabulary)
		if err == nil {
			err = sameEncoding(train, held, cfg.Data.ValPath, log)
		}
		if err != nil {
			return out, err
		}
		out.Eval = tokens.Windows{Corpus: held, Length: s.Length, Rest: true}
		if words != nil {
			if out.Eval, err = s.masked(ctx, held, words, out.Pairs); err != nil {
				return out, err
			}
		}
		out.Note += fmt.Sprintf(", %d evaluation tokens", held.Len())
	} else {
		log.Warn("no file names a part for evaluation (val, test), so the run has no evaluation: set data.val_path",
			"path", cfg.Data.Path)
	}
	encoding := encodingOf(train)
	out.Tokenizer, out.Words = encoding.Name, encoding.Sum
	if out.Tokenizer != "" {
		out.Note += ", tokenizer " + show.Foreign(out.Tokenizer)
	}
	out.Content, out.LeftOut = tokens.Content(files.list...), files.left
	out.Files = len(found.Train) + len(found.Eval)
	if out.Identity, out.Print, err = files.identity(words); err == nil && words != nil {
		warnUnknown(log, cfg.Data.Path, files.unknown)
	}
	return out, err
}

// encodingOf returns the identity of the tokenizer of a corpus.
func encodingOf(c *tokens.Corpus) tokenizer.Identity {
	h := c.Shards[0].Header // all shards of a corpus have the same tokenizer
	return tokenizer.IdentityOf(h.Tokenizer, h.VocabularySum)
}

// sameEncoding returns an error if the training part and the evaluation part held come from different tokenizers. If
// data.val_path is set, valPath is its value, and held comes from this path.
func sameEncoding(train, held *tokens.Corpus, valPath string, log *slog.Logger) error {
	was, now := encodingOf(train), encodingOf(held)
	place, path := train.Shards[0].Path, held.Shards[0].Path
	if valPath == "" && was.Compare(now) == tokenizer.Different {
		return &data.Fault{Op: "open token shard", Path: path, Index: -1,
			Err: fmt.Errorf("the evaluation part comes from %s, but the training part, %s, from %s", now, place,
				was),
			Advice: "convert both parts with the same tokenizer"}
	}
	warning, err := compareEncodings(place, was, "data.val_path: "+path, now,
		"convert both parts with the same tokenizer: hetero-train data tokenize --tokenizer NAME")
	if warning != "" {
		log.Warn(warning)
	}
	return err
}

// FindTokens returns the token files that a configuration names, and the options to open them.
func FindTokens(cfg *config.Config) (tokens.Found, tokens.OpenOptions, error) {
	s, ok := cfg.Data.Options.(*textFiles)
	if !ok {
		return tokens.Found{}, tokens.OpenOptions{}, exit.Usagef("data.dataset: got %s, want text for token files",
			cfg.Data.Dataset)
	}
	if err := s.check(); err != nil {
		return tokens.Found{}, tokens.OpenOptions{}, err
	}
	found, err := s.find(&cfg.Data)
	return found, tokens.OpenOptions{Vocabulary: s.Vocabulary, TokenBytes: s.TokenBytes}, err
}

func (s *textFiles) check() error {
	if s.TokenBytes == 1 || s.TokenBytes == 3 {
		return exit.Usagef("data.token_bytes: got %d, want 0, 2 or 4", s.TokenBytes)
	}
	return nil
}

// find returns the token files of both parts.
func (s *textFiles) find(d *config.Data) (tokens.Found, error) {
	found, err := tokens.Find(d.Path, d.FollowLinks)
	if err != nil {
		return found, err
	}
	switch {
	case d.All && found.Eval == nil:
		found.Eval, found.EvalFrom = found.Train, "all samples"
		if found.Folder {
			found.EvalFrom = "part train"
		}
	case d.All && found.Train == nil:
		found.Train = found.Eval
	case d.ValPath != "":
		err := evaluateOn(&found, d.ValPath, d.FollowLinks, tokens.Find, "find token shards", "one of them")
		return found, err
	}
	return found, nil
}

// corpora contains the open token files of both parts.
type corpora struct {
	open    tokens.OpenOptions
	list    []*tokens.Corpus
	left    []data.LeftOut
	unknown float64 // fraction of unknown tokens, estimated by identity
}

func (c *corpora) openAll(paths []string, vocabulary int) (*tokens.Corpus, error) {
	if len(paths) == 0 {
		return nil, &data.Fault{Op: "find token shards", Index: -1,
			Err: errors.New("no file names the training part: want a name that contains train")}
	}
	o := c.open
	o.Vocabulary = vocabulary
	corpus, err := o.OpenCorpus(paths)
	if err == nil {
		c.list = append(c.list, corpus)
	}
	return corpus, err
}

// Close implements [io.Closer].
func (c *corpora) Close() error {
	var errs []error
	for _, corpus := range c.list {
		errs = append(errs, corpus.Close())
	}
	return errors.Join(errs...)
}

// identity returns a digest and a fingerprint. The digest covers the number of tokens and the checksum of each file. It
// also covers some of the tokens, because some formats have no checksums. The fingerprint has one print for each of the
// two corpora: training and evaluation. If words is not nil, identity also counts the unknown tokens among those that
// it reads.
func (c *corpora) identity(words *tokenizer.WordPiece) (string, Fingerprint, error) {
	all := sha256.New()
	read, unknown := 0, 0
	some := make([]int32, 1024)
	var prints [2]*PartPrint
	for i, corpus := range c.list {
		part := sha256.New()
		h := io.MultiWriter(all, part)
		for _, shard := range corpus.Shards {
			fmt.Fprintf(h, "%d %d %q %x\n", shard.Count, shard.Vocabulary, shard.Tokenizer, shard.Sum)
			n := min(int64(len(some)), shard.Count)
			for _, at := range []int64{0, (shard.Count - n) / 2, shard.Count - n} {
				if err := shard.Read(at, some[:n]); err != nil {
					return "", Fingerprint{}, err
				}
				fmt.Fprintln(h, some[:n])
				read += int(n)
				for _, token := range some[:n] {
					if words != nil && token == words.Specials.Unknown {
						unknown++
					}
				}
			}
		}
		if i < len(prints) {
			prints[i] = &PartPrint{Unit: "tokens", Units: corpus.Len(), Rest: digest(part.Sum(nil))}
		}
	}
	c.unknown = float64(unknown) / float64(max(read, 1))
	return digest(all.Sum(nil)), Fingerprint{Train: prints[0], Eval: prints[1]}, nil
}
