package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/huggingface"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// HuggingFace is the name of the data set that reads the file formats of Hugging Face's library datasets.
const HuggingFace = "huggingface"

// anyDataOptions are the keys of table [data] for an anyData.
type anyDataOptions interface {
	builtinImages
	builtinTokens
}

// anyData is a data set that can provide images or text. It provides the kind of samples that the model reads.
type anyData struct {
	Name   string
	Doc    string // phrase that describes the component in `config docs`
	New    func() anyDataOptions
	Traits config.DataTraits // properties of the data set that rules of other keys use
}

func (d anyData) addTo(c *config.Catalog) error {
	return addKind(&c.DataSets, "data set",
		config.Kind{Name: d.Name, Doc: d.Doc, Data: d.Traits, Samples: config.AnySamples}, d.New)
}

// huggingFace has the keys of the data set HuggingFace, whose files data.path names.
type huggingFace struct {
	TrainSplit, EvalSplit string
	Image, Tokens         string
	Separator             string
	Vocabulary            int

	labelledText // columns of labelled texts; for images, Label is the column of their labels
}

func (*huggingFace) format() string { return "" }

// ReadMemory implements [MemoryUser].
func (*huggingFace) ReadMemory(*config.Data) ReadMemory { return ReadMemory{Ahead: data.AheadBytes} }

// Ignores implements [config.Ignorer].
func (*huggingFace) Ignores() []string { return []string{"shard_cache_mb", "class_names"} }

// IgnoresWith implements [config.SampleIgnorer].
func (*huggingFace) IgnoresWith(s config.Samples) []string {
	if s == config.Images {
		return []string{"sequence_length", "text_column", "second_column", "tokens_column", "vocabulary", "vocab_file",
			"cased", "group_by_length"}
	}
	return slices.DeleteFunc(append([]string{"image_column", "label_separator", "num_samples"}, imageKeys...),
		func(key string) bool { return key == "shard_cache_mb" || key == "class_names" })
}

// Keys implements [config.Options].
func (s *huggingFace) Keys() []config.Key {
	keys := []config.Key{
		config.String(&s.TrainSplit, "train_split", "").Learnt().
			Doc("Name of the split for training. Empty: the names of the splits state their parts."),
		config.String(&s.EvalSplit, "eval_split", "").Learnt().
			Doc("Name of the split for evaluation. Empty: the names of the splits state their parts."),
		config.String(&s.Image, "image_column", "").Learnt().
			Doc("Column of the images: encoded bytes, or paths of files. Empty: the only column with the feature `Image`, otherwise `image`; in `metadata.csv` and other lists `file_name`."),
		config.String(&s.Separator, "label_separator", "").Learnt().
			Doc("Text between the labels of an image that has several, such as `|`, if `label_column` has texts. Each label is then a target of its own (multi-label classification), and an empty text is an image without labels. Lists of labels need no separator. Empty: the text is one class."),
		config.String(&s.Tokens, "tokens_column", "input_ids").Learnt().
			Doc("Column of the token lists, for models that predict the next token. The lists are joined in their order."),
		config.Int(&s.Vocabulary, "vocabulary", 0).Learnt().Shapes().Unit("tokens").AtMost(1 << 24).
			Doc("Number of different tokens of the token lists. Token lists need this key."),
	}
	return append(keys, s.labelledText.keys(config.String(&s.Label, "label_column", "").Learnt().
		Doc("Column of the classes of images or texts. Empty: `label`; for images without such a column the only column with the feature `ClassLabel`."))...)
}

// source returns the paths and the names of the splits.
func (s *huggingFace) source(d *config.Data) huggingface.Source {
	return huggingface.Source{Path: d.Path, ValPath: d.ValPath, TrainSplit: s.TrainSplit, EvalSplit: s.EvalSplit,
		All: d.All, FollowLinks: d.FollowLinks}
}

// Open implements [DataSetOptions].
func (s *huggingFace) Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (data.Splits, error) {
	d := cfg.Data
	cache, err := CacheDir(d.CacheDir)
	if err != nil {
		return data.Splits{}, err
	}
	splits, err := huggingface.Open(ctx, huggingface.Options{Source: s.source(&d), Image: s.Image, Label: s.Label,
		Separator: s.Separator, ValFraction: d.ValFraction, CacheDir: cache, SkipDamaged: d.Corrupt == "skip",
		Decode: DecodeOptions(d), Logger: log,
		Progress: ProgressLog(log, "copying the images of "+d.Path+" to the cache, once")})
	if err != nil {
		return splits, err
	}
	if s.Separator != "" && !slices.ContainsFunc(splits.Sets.Sets, func(set []int32) bool { return len(set) > 1 }) {
		log.Warn(fmt.Sprintf("no label has the separator %q (data.label_separator), so no image has several labels",
			s.Separator), "path", d.Path, "labels", len(splits.Sets.Names))
	}
	if example, n := combinations(splits.Train.Classes()); n > 0 && splits.Sets == nil {
		log.Warn(fmt.Sprintf("labels such as %q seem to be several labels of one image, but each combination is a class of its own: for several labels, set data.label_separator",
			example), "path", d.Path, "combinations", n, "classes", len(splits.Train.Classes()))
	}
	return splits, nil
}

// texts returns the settings for labelled texts, with the default of the label column.
func (s *huggingFace) texts() *labelledText {
	t := &s.labelledText
	t.Label = cmp.Or(t.Label, "label")
	return t
}

func (s *huggingFace) labelledFor(m *config.Model) (*labelledText, bool) {
	if _, ok := m.Options.(textClassifier); !ok {
		return nil, false
	}
	return s.texts(), true
}

// OpenTokens implements [TokenDataOptions].
func (s *huggingFace) OpenTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (TokenSplits, error) {
	if _, ok := cfg.Model.Options.(textClassifier); ok {
		t := s.texts()
		return t.open(ctx, cfg, log, func() (*labelledFiles, error) { return s.findTexts(ctx, &cfg.Data) })
	}
	return s.openLists(ctx, cfg, log)
}

// findTexts lists the files of labelled texts, and checks the columns of the first readable one.
func (s *huggingFace) findTexts(ctx context.Context, d *config.Data) (out *labelledFiles, err error) {
	out = new(labelledFiles)
	found, err := huggingface.Find(ctx, s.source(d))
	if err != nil {
		return out, err
	}
	skip := d.Corrupt == "skip"
	t := s.texts()
	columns := []string{t.Text, t.Label}
	if t.Second != "" {
		columns = append(columns, t.Second)
	}
	f, err := found.Open(found.Train[0])
	for k := 1; skip && k < len(found.Train) && err != nil && isDamagedTable(err); k++ { // eachLine leaves its rows out
		f, err = found.Open(found.Train[k])
	}
	if err != nil {
		return out, err
	}
	defer f.Close() // no error: the file was only read
	for k, column := range columns {
		field, ok := f.Field(column)
		key := []string{"data.text_column", "data.label_column", "data.second_column"}[k]
		want, fits := "text", field.Kind == table.Text
		if k == 1 {
			want = "whole numbers, booleans or texts"
			fits = fits || field.Kind == table.Integer || field.Kind == table.Boolean
		}
		switch {
		case !ok:
			err = fmt.Errorf("%s: there is no column %q; the columns are %q", key, column, f.Names())
		case field.Kind == table.Integers:
			err = fmt.Errorf("%s: column %q has lists of labels (several labels per text): this program has no loss for several labels; want one label per row",
				key, column)
		case !fits:
			err = fmt.Errorf("%s: column %q has %s, want %s", key, column, field.Kind, want)
		}
		if err != nil {
			return out, data.FileFault("open data set", f.Path, err)
		}
	}
	out.Found = tokens.Found{Train: found.Train, Eval: found.Eval, EvalFrom: found.EvalFrom, Unused: found.Unused,
		Folder: true}
	if names := f.Features[t.Label].Names; len(names) > 0 {
		out.classes = names
	}
	out.eachLine = func(paths []string) func(context.Context, func([]byte) error) error {
		return func(ctx context.Context, visit func([]byte) error) error {
			for _, path := range paths {
				var own error // error of visit, not of reading the file
				f, err := found.Open(path)
				if err == nil {
					err = errors.Join(f.EachLine(ctx, columns, func(line []byte) error {
						own = visit(line)
						return own
					}), f.Close())
				}
				if skip && err != nil && own == nil && isDamagedTable(err) {
					out.left = append(out.left, data.LeftOut{Path: path, Whole: f == nil, Rest: f != nil,
						Reason: err})
					continue
				}
				if err != nil {
					return fmt.Errorf("%s: %w", filepath.Base(path), err)
				}
			}
			return nil
		}
	}
	return out, nil
}

// isDamagedTable reports whether err means that an Arrow or Parquet file has damaged contents. A file of another format
// is not damaged.
func isDamagedTable(err error) bool { return data.IsDamage(err) && !errors.Is(err, table.ErrFormat) }

// openLists opens the token lists of the data set, for models that predict the next token.
func (s *huggingFace) openLists(ctx context.Context, cfg *config.Config, log *slog.Logger) (out TokenSplits,
	err error) {
	if Masks(&cfg.Model) {
		return out, exit.Usagef("model %s: data set %s has no masked tokens: convert the texts with hetero-train data tokenize, and set data.dataset = \"text\"",
			cfg.Model.Name, HuggingFace)
	}
	found, err := huggingface.Find(ctx, s.source(&cfg.Data))
	if err != nil {
		return out, err
	}
	f, err := found.Open(found.Train[0])
	if err != nil {
		return out, err
	}
	_, lists := f.Field(s.Tokens)
	text, isText := f.Field(s.Text)
	isText = isText && text.Kind == table.Text
	f.Close() // no error: the file was only read
	if !lists && isText {
		fault := data.FileFault("open data set", cfg.Data.Path,
			fmt.Errorf("there is no column %q (data.tokens_column), but a column %q of texts", s.Tokens, s.Text))
		fault.Advice = fmt.Sprintf("convert the texts to tokens first: hetero-train data tokenize %s --field %s --tokenizer gpt2 --output tokens; then set data.dataset = \"text\" and data.path = \"tokens\"",
			cfg.Data.Path, s.Text)
		return out, fault
	}
	if s.Vocabulary == 0 {
		return out, exit.Usagef("data.vocabulary: token lists do not state the number of different tokens; set data.vocabulary, for example 50257 for the tokens of GPT-2")
	}
	cache, err := CacheDir(cfg.Data.CacheDir)
	if err != nil {
		return out, err
	}
	log.Debug("token lists are copied to the cache, once", "cache", cache)
	files := tokens.Found{EvalFrom: found.EvalFrom, Unused: found.Unused, Folder: true}
	var left *[]data.LeftOut
	if cfg.Data.Corrupt == "skip" {
		left = new([]data.LeftOut)
	}
	for _, part := range []struct {
		from []string
		to   *[]string
	}{{found.Train, &files.Train}, {found.Eval, &files.Eval}} {
		*part.to, err = found.TokenFiles(ctx, part.from, s.Tokens, s.Vocabulary, filepath.Join(cache, "columns"), left)
		if err != nil {
			return out, err
		}
	}
	if len(files.Train) == 0 {
		return out, data.FileFault("open data set", cfg.Data.Path, errors.New("the token lists are empty"))
	}
	t := textFiles{Length: s.Length, Vocabulary: s.Vocabulary}
	out, err = t.openFound(ctx, cfg, log, files)
	if left != nil {
		out.LeftOut = append(*left, out.LeftOut...)
		out.Files = len(found.Train) + len(found.Eval)
	}
	return out, err
}
