package parts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// CheckPairs returns an error if the samples are pairs of texts but the model cannot read pairs.
func CheckPairs(cfg *config.Config) error {
	model, ok := cfg.Model.Options.(textClassifier)
	if _, pairs := SampleOf(cfg); !ok || !pairs {
		return nil
	}
	return exit.With(exit.Usage, model.checkPairs())
}

// LabelledText is the name of the data set of labelled texts.
const LabelledText = "labelled_text"

// labelledText has the keys for a data set of labelled texts.
type labelledText struct {
	Length              int
	Text, Second, Label string
	VocabFile           string
	Cased               bool
	Group               bool

	classes []string // class names that UseClasses has set; nil: those of the data
}

func (*labelledText) format() string { return "tab-separated values and JSON lines" }

// Ignores implements [config.Ignorer].
func (*labelledText) Ignores() []string {
	return append([]string{"num_samples"}, imageKeys...)
}

// Keys implements [config.Options].
func (s *labelledText) Keys() []config.Key {
	return s.keys(config.String(&s.Label, "label_column", "label").Learnt().
		Doc("Column or field that contains the class."))
}

// keys returns all keys. The parameter label is the key data.label_column, which differs between the data sets.
func (s *labelledText) keys(label config.Key) []config.Key {
	return []config.Key{
		config.Int(&s.Length, "sequence_length", 128).Learnt().Shapes().Unit("tokens").AtLeast(1).AtMost(
			tokens.MostLength).
			Doc("Number of tokens per sample, with `[CLS]`, `[SEP]` and padding. Longer texts are truncated. In a pair, the longer text is truncated first."),
		config.String(&s.Text, "text_column", "text").Learnt().
			Doc("Column, or field of each JSON line, that contains the text."),
		config.String(&s.Second, "second_column", "").Learnt().
			Doc("Column or field that contains the second text of a pair. Empty: single texts."),
		label,
		config.String(&s.VocabFile, "vocab_file", "").Path().Operational().
			Doc("WordPiece vocabulary: the `vocab.txt` of the BERT model. Required."),
		config.Bool(&s.Cased, "cased", false).Learnt().
			Doc("Keeps capital letters and accents, as the vocabulary of a cased model needs. If no file and no flag sets the key, `do_lower_case` in `tokenizer_config.json` next to the vocabulary decides, otherwise whether the vocabulary has words with capital letters."),
		groupByLength(&s.Group),
	}
}

// UseClasses sets the class names of labelled texts to those of a trained model, so that each label has the same number
// as in training. A label may then also be the number of a class. UseClasses has no effect on other data sets. It also
// has no effect if the names do not identify the classes.
func UseClasses(cfg *config.Config, names []string) {
	if s, ok := labelledOf(cfg); ok && weights.Named(names) {
		s.classes = names
	}
}

// labelledOf returns the settings of labelled texts. The result ok is false if the configuration selects other data.
func labelledOf(cfg *config.Config) (s *labelledText, ok bool) {
	if o, may := cfg.Data.Options.(mayBeLabelled); may {
		return o.labelledFor(&cfg.Model)
	}
	return nil, false
}

// mayBeLabelled is implemented by the options of data sets that can provide labelled texts.
type mayBeLabelled interface {
	// labelledFor returns the settings of the texts. The result ok is false if the model reads other samples.
	labelledFor(m *config.Model) (s *labelledText, ok bool)
}

func (s *labelledText) labelledFor(*config.Model) (*labelledText, bool) { return s, true }

// labelledFiles contains the files of labelled texts.
type labelledFiles struct {
	tokens.Found
	// eachLine reads the lines of files in other formats than TSV and JSON lines; nil: all files are TSV or JSON lines
	eachLine func(paths []string) func(ctx context.Context, visit func(line []byte) error) error
	classes  []string       // class names in their order; nil: the sorted labels of the training files
	left     []data.LeftOut // damaged files that eachLine has left out
}

// wordPiece returns the tokenizer of the texts. If the user did not set data.cased, it sets Cased to the case of the
// vocabulary. The result warning describes a difference between the setting and the vocabulary; it is "" if there is
// none.
func (s *labelledText) wordPiece(cfg *config.Config) (w *tokenizer.WordPiece, warning string, err error) {
	if s.VocabFile == "" {
		return nil, "",
			exit.Usagef(
				"data.vocab_file: labelled texts need a WordPiece vocabulary, for example the vocab.txt of a BERT model")
	}
	w, err = tokenizer.OpenWordPiece(s.VocabFile, s.Cased)
	if err != nil {
		return nil, "", fmt.Errorf("data.vocab_file: %w", err)
	}
	found := w.CaseOf(s.VocabFile)
	if !found.Known || found.Cased == s.Cased {
		return w, "", nil
	}
	if cfg.Origin("data.cased") == "" {
		s.Cased = found.Cased
		return w.WithCase(found.Cased),
			fmt.Sprintf("data.cased is not set; the tokenizer %s, because %s: set data.cased = %v",
				map[bool]string{true: "keeps capital letters", false: "converts text to lower case"}[found.Cased],
				found.Reason, found.Cased), nil
	}
	return w,
		fmt.Sprintf("data.cased = %v does not fit the vocabulary: %s; words with capital letters may become [UNK]",
			s.Cased, found.Reason), nil
}

// OpenTokens implements [TokenDataOptions].
func (s *labelledText) OpenTokens(ctx context.Context, cfg *config.Config, log *slog.Logger) (out TokenSplits,
	err error) {
	if cfg.Data.Path == "" {
		return out, exit.Usagef("data.path: data set %s needs a file of tab-separated values or of JSON lines",
			LabelledText)
	}
	return s.open(ctx, cfg, log, func() (*labelledFiles, error) {
		found, err := s.find(&cfg.Data)
		return &labelledFiles{Found: found}, err
	})
}

// open opens the labelled texts of the files that find returns.
func (s *labelledText) open(ctx context.Context, cfg *config.Config, log *slog.Logger,
	find func() (*labelledFiles, error)) (out TokenSplits, err error) {
	if _, ok := cfg.Model.Options.(textClassifier); !ok {
		return out, exit.Usagef("model %s predicts tokens, but data set %s has classes: want a model that classifies texts, such as bert_base",
			cfg.Model.Name, cfg.Data.Dataset)
	}
	if err := CheckPairs(cfg); err != nil {
		return out, err
	}
	words, warning, err := s.wordPiece(cfg)
	if err != nil {
		return out, err
	}
	if warning != "" {
		log.Warn(warning)
	}
	found, err := find()
	if err != nil {
		return out, err
	}
	o := tokens.ClassificationOptions{Tokenizer: words, Length: s.Length, Text: s.Text, Second: s.Second,
		Label: s.Label, Numbered: s.classes != nil, SkipDamaged: cfg.Data.Corrupt == "skip"}
	open := func(paths, classes []string) (*tokens.Classification, error) {
		path := paths[0]
		if found.eachLine != nil {
			o.EachLine = found.eachLine(paths)
			if len(paths) > 1 {
				path = cfg.Data.Path
			}
		}
		o.Path, o.Classes = path, classes
		if s.classes != nil { // the rule is the same as for the classes of images
			o.Locate = func(label string) (int, bool) {
				at, _, ok := weights.Locate([]string{label}, classes)
				return append(at, 0)[0], ok
			}
		}
		set, err := tokens.OpenClassification(ctx, o)
		if err != nil && !errors.As(err, new(*data.Fault)) && ctx.Err() == nil {
			err = exit.With(exit.Usage, fmt.Errorf("data.sequence_length: %w", err))
		}
		if err == nil {
			warnUnknown(log, path, set.Unknown())
		}
		return set, err
	}
	classes := s.classes
	if classes == nil {
		classes = found.classes
	}
	all, err := open(found.Train, classes)
	if err != nil {
		return out, err
	}
	train, eval := all, (*tokens.Classification)(nil)
	files := []*tokens.Classification{all}
	switch {
	case found.Eval == nil:
		train, eval = all.Split(cfg.Data.ValFraction)
	case found.Eval[0] == found.Train[0]:
		eval = all
	default:
		if eval, err = open(found.Eval, all.Classes()); err != nil {
			return out, err
		}
		files = append(files, eval)
	}
	if n := decimals(all.Classes()); n > 0 {
		log.Warn(
			"labels are decimal numbers: each number is a class of its own, because this program has no regression",
			"path", cfg.Data.Path, "numbers", n, "classes", len(all.Classes()))
	}
	if example, n := combinations(all.Classes()); n > 0 {
		log.Warn(fmt.Sprintf("labels such as %q seem to be several labels of one text: each combination is a class of its own, because this program has no classifier for several labels per text",
			example),
			"path", cfg.Data.Path, "combinations", n, "classes", len(all.Classes()))
	}
	warnTruncated(log, "training", train, s.Length)
	warnTruncated(log, "evaluation", eval, s.Length)
	if longest := max(longestOf(train), longestOf(eval)); longest*5 <= s.Length*4 {
		log.Warn("the longest text needs fewer tokens than data.sequence_length: a smaller value saves the time and the memory of padding",
			"longest", longest, "sequence_length", s.Length)
	}
	out = TokenSplits{Train: train, EvalFrom: found.EvalFrom, Same: eval == all, Unused: found.Unused,
		Vocabulary: words.Vocabulary(), Length: s.Length, Classes: all.Classes(), Tokenizer: words.Name(),
		Words: wordsOf(words),
		Note:  fmt.Sprintf("%d classes: %s; tokenizer %s", len(all.Classes()), classList(all.Classes()), words.Name())}
	if s.Group {
		out.Shorter = shorterLengths(train, s.Length)
	}
	if eval.Len() > 0 {
		out.Eval = eval
	} else {
		log.Warn("no samples for evaluation: set data.val_path or data.val_fraction", "path", cfg.Data.Path)
	}
	out.Identity, out.Content = identifyLabelled(train, eval), tokens.TextContent(files...)
	out.LeftOut, out.Files = found.left, len(found.Train)+len(found.Eval)
	for _, set := range files {
		out.LeftOut = append(out.LeftOut, set.LeftOut()...)
	}
	out.Print = Fingerprint{Train: printLabelled(train), Eval: printLabelled(eval)}
	return out, nil
}

// find returns the training file and the evaluation file. Without an evaluation file, Eval is nil.
func (s *labelledText) find(d *config.Data) (tokens.Found, error) {
	found, err := tokens.FindLabelled(d.Path, d.FollowLinks)
	if err != nil {
		return found, err
	}
	switch {
	case d.All && found.Eval == nil:
		found.Eval, found.EvalFrom = found.Train, "all samples"
		if found.Folder {
			found.EvalFrom = "file " + filepath.Base(found.Train[0])
		}
	case d.All && found.Train == nil:
		found.Train = found.Eval
	case found.Train == nil:
		return found, &data.Fault{Op: "find labelled texts", Path: d.Path, Index: -1,
			Err: errors.New("no file names the training part: want a name that contains train")}
	case d.ValPath != "":
		err := evaluateOn(&found, d.ValPath, d.FollowLinks, tokens.FindLabelled, "find labelled texts", "one file")
		return found, err
	}
	return found, nil
}

// warnTruncated warns if texts of a part of the data are truncated.
func warnTruncated(log *slog.Logger, part string, set *tokens.Classification, length int) {
	if n := set.Truncated(); n > 0 {
		log.Warn(fmt.Sprintf("%d of %d %s texts are longer than data.sequence_length and are truncated", n, set.Len(),
			part), "sequence_length", length)
	}
}

// LabelledOptions returns the options to open the configured file of labelled texts. They include the tokenizer if a
// vocabulary is configured. The result warning describes a vocabulary that does not fit the settings. The result ok is
// false if the configuration selects other data.
func LabelledOptions(cfg *config.Config) (o tokens.ClassificationOptions, warning string, ok bool, err error) {
	s, ok := labelledOf(cfg)
	if !ok {
		return o, "", false, nil
	}
	o = tokens.ClassificationOptions{Path: cfg.Data.Path, Length: s.Length, Text: s.Text, Second: s.Second,
		Label: s.Label}
	if s.VocabFile != "" {
		o.Tokenizer, warning, err = s.wordPiece(cfg)
	}
	return o, warning, true, err
}

// longestOf returns the number of tokens of the longest sample.
func longestOf(set *tokens.Classification) (longest int) {
	for i := range set.Len() {
		longest = max(longest, set.Length(i))
	}
	return longest
}

// classList lists the first few class names.
func classList(names []string) string {
	const most = 8
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += ", …"
	}
	return text
}

// identifyLabelled returns a digest of all samples and class names.
func identifyLabelled(sets ...*tokens.Classification) string {
	h := sha256.New()
	for _, set := range sets {
		fmt.Fprintf(h, "%d %q\n", set.Len(), set.Classes())
		set.WriteTo(h) // a hash returns no errors
	}
	return digest(h.Sum(nil))
}

var _ io.WriterTo = (*tokens.Classification)(nil)

// BuildTexts returns the configured classifier of texts. An error has the exit code of usage errors.
func BuildTexts(m *config.Model, vocabulary, length int) (models.SequenceClassifier, error) {
	o, ok := m.Options.(textClassifier)
	if !ok {
		return nil, exit.Usagef("model %s predicts tokens, want a model that classifies texts, such as bert_base",
			m.Name)
	}
	model, err := o.buildTexts(vocabulary, length)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("model %s: %w", m.Name, err))
	}
	return model, nil
}

// SampleOf returns the number of tokens per sample of labelled texts, and whether the samples are pairs of texts. If
// the configuration selects other data, it returns 0.
func SampleOf(cfg *config.Config) (length int, pairs bool) {
	s, ok := labelledOf(cfg)
	if !ok {
		return 0, false
	}
	return s.Length, s.Second != ""
}

// TokenizerOf returns the tokenizer of a trained text model. The parameter vocab is the path of the vocabulary; if it
// is "", a WordPiece vocabulary comes from the data settings.
func TokenizerOf(cfg *config.Config, vocab string, trained Trained) (tokenizer.Tokenizer, error) {
	switch name := trained.Tokenizer; {
	case Masks(&cfg.Model), strings.HasPrefix(name, "wordpiece"):
		words, err := VocabularyOf(cfg, vocab, trained)
		if err != nil {
			return nil, err
		}
		if name != "" { // keep the case setting of the training
			words = words.WithCase(name == "wordpiece-cased")
		}
		return words, nil
	case name == "":
		return nil, exit.Usagef("the training data do not name a tokenizer: state it with --tokenizer")
	case name == tokenizer.Other:
		return nil, exit.Usagef("the weights were trained with %s: copy its files (tokenizer.json, or vocab.json and merges.txt) from the folder of these weights",
			trained.Encoding())
	default:
		t, err := tokenizer.New(name, vocab)
		return t, exit.With(exit.Usage, err)
	}
}

// VocabularyOf opens the WordPiece vocabulary of a trained model. This is the file path, or the vocabulary in the data
// settings if path is "". VocabularyOf returns an error if the model was trained with another vocabulary.
func VocabularyOf(cfg *config.Config, path string, trained Trained) (*tokenizer.WordPiece, error) {
	key, cased := "--vocab", trained.Tokenizer == "wordpiece-cased"
	if path == "" {
		key = "data.vocab_file"
		if o, ok := labelledOf(cfg); ok {
			path, cased = o.VocabFile, o.Cased
		}
		switch o := cfg.Data.Options.(type) {
		case *textFiles:
			path = o.VocabFile
			if found, err := tokens.Find(cfg.Data.Path, cfg.Data.FollowLinks); path == "" && err == nil &&
				len(found.Train) > 0 {
				path = filepath.Join(filepath.Dir(found.Train[0]), "vocab.txt")
			}
		}
	}
	if path == "" {
		return nil, exit.Usagef("--vocab: the settings have no WordPiece vocabulary: want --vocab FILE, for example the vocab.txt of the BERT model")
	}
	w, err := tokenizer.OpenWordPiece(path, cased)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if found := w.CaseOf(path); key == "--vocab" && trained.Tokenizer == "" && found.Known {
		w = w.WithCase(found.Cased)
	}
	return w, trained.CheckWords(w, key)
}

// printLabelled returns the fingerprint of a part of labelled texts.
func printLabelled(set *tokens.Classification) *PartPrint {
	if set.Len() == 0 {
		return nil
	}
	p := &PartPrint{Unit: "samples", Units: int64(set.Len()), Rest: identifyLabelled(set)}
	n := min(set.Len(), identitySamples)
	for k := range n {
		p.addSum(set.Sum(sampleAt(k, n, p.Units)))
	}
	return p
}
