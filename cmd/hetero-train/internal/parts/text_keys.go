package parts

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// syntheticText has the keys of the data set whose tokens come from a Markov source.
type syntheticText struct {
	Length, Vocabulary int
	Shortest           int
	Entropy            float64
	MaskFraction       float64
	Group              bool
}

func (*syntheticText) format() string { return "" }

// Ignores implements [config.Ignorer].
func (*syntheticText) Ignores() []string {
	return append([]string{"cache_dir", "object_cache_mb", "val_fraction", "follow_links", "corrupt", "corrupt_limit"},
		imageKeys...)
}

// Keys implements [config.Options].
func (s *syntheticText) Keys() []config.Key {
	return []config.Key{
		sequenceLength(&s.Length),
		config.Int(&s.Vocabulary, "vocabulary", 64).Learnt().Shapes().Unit("tokens").AtLeast(2).AtMost(1 << 16).
			Doc("Number of different tokens. BERT: with 4 special tokens."),
		config.Int(&s.Shortest, "min_sequence_length", 0).Learnt().Unit("tokens").AtMost(tokens.MostLength).
			Doc("Number of tokens of the shortest sample: lengths are uniform between it and `sequence_length`. 0: all samples have `sequence_length` tokens."),
		config.Float(&s.Entropy, "entropy", 1).Learnt().Above(0).
			Doc("Entropy of a token, given the previous one, in nats: the lowest possible loss. At most the natural logarithm of `vocabulary`."),
		maskFraction(&s.MaskFraction),
		groupByLength(&s.Group),
	}
}

// textFiles has the keys of the data set of token files.
type textFiles struct {
	Length, Vocabulary int
	TokenBytes         int
	VocabFile          string
	MaskFraction       float64
	Group              bool
}

func (*textFiles) format() string { return tokenFormat }

// Ignores implements [config.Ignorer].
func (*textFiles) Ignores() []string {
	return append([]string{"object_cache_mb", "val_fraction", "num_samples"}, imageKeys...)
}

// Keys implements [config.Options].
func (s *textFiles) Keys() []config.Key {
	return []config.Key{
		sequenceLength(&s.Length),
		config.Int(&s.Vocabulary, "vocabulary", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 24).
			Doc("Number of different tokens. 0: the number in the header of the files. Files without a header need this key."),
		config.Int(&s.TokenBytes, "token_bytes", 0).Learnt().Unit("bytes").AtMost(4).
			Doc("Size of a token in files without a header: 2 (uint16) or 4 (int32). 0: 2. A file that evidently has tokens of another size is an error (exit 3)."),
		config.String(&s.VocabFile, "vocab_file", "").Path().Operational().
			Doc("WordPiece vocabulary of the token files, for models of masked tokens (BERT). Empty: `vocab.txt` in the folder of the files, where `data tokenize` writes it."),
		maskFraction(&s.MaskFraction),
		groupByLength(&s.Group),
	}
}

// maskFraction returns the key data.mask_fraction, the fraction of masked tokens.
func maskFraction(field *float64) config.Key {
	return config.Float(field, "mask_fraction", 0.15).Learnt().Above(0).AtMost(1).
		Doc("Fraction of the tokens of a sample that the model predicts, for models of masked tokens (BERT). Of these, 80 % are replaced by `[MASK]`, 10 % by a random token, and 10 % stay.")
}

// imageKeys are the keys of [data] that only image data sets use.
var imageKeys = []string{"image_size", "num_classes", "max_pixels", "crop_padding", "random_resized_crop", "flip",
	"mean", "std", "class_names", "shard_cache_mb",
	"exif_orientation", "max_classes", "samples_per_class"}

// sequenceLength returns the key data.sequence_length, the number of tokens in a sample.
func sequenceLength(field *int) config.Key {
	return config.Int(field, "sequence_length", 64).Learnt().Shapes().Unit("tokens").AtLeast(1).AtMost(
		tokens.MostLength).
		Doc("Number of tokens per sample. GPT-2: the label of each token is the token that follows it. BERT: samples are whole sentences of one document, as many as fit, with `[CLS]`, `[SEP]` and padding.")
}

// evaluateOn makes the files at path (data.val_path) the evaluation part. The texts op and want complete the error for
// a path with several parts.
func evaluateOn(found *tokens.Found, path string, followLinks bool,
	find func(path string, followLinks bool) (tokens.Found, error), op, want string) error {
	held, err := find(path, followLinks)
	if err == nil && held.Train != nil && held.Eval != nil {
		err = &data.Fault{
			Op: op, Path: path, Index: -1, Err: errors.New("data.val_path has several parts, want " + want)}
	}
	if err != nil {
		return err
	}
	found.Unused = strings.Join(baseNames(found.Eval), ", ")
	found.Eval, found.EvalFrom = append(held.Train, held.Eval...), "all samples of "+path
	return nil
}

// MostUnknown is the fraction of unknown tokens above which the program warns. BERT's vocabularies leave less than 1 %
// of the tokens of their own language unknown.
const MostUnknown = 0.05

// warnUnknown warns if many tokens are unknown.
func warnUnknown(log *slog.Logger, path string, fraction float64) {
	if fraction > MostUnknown {
		log.Warn(fmt.Sprintf("%.1f %% of the tokens are [UNK]: the vocabulary does not fit the text, and the model cannot tell these words apart",
			100*fraction), "path", path)
	}
}

func baseNames(paths []string) (names []string) {
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}
