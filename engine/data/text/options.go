package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// Lines determines which files are JSON lines.
type Lines int

// The rules for JSON lines.
const (
	LinesBySuffix Lines = iota // files named .jsonl or .ndjson, including .jsonl.gz and .jsonl.zst
	LinesAlways
	LinesNever
)

// Options configures a conversion. Workers and Progress do not affect the result.
type Options struct {
	Inputs    []string // paths of files and folders
	Folder    string   // folder of the result; created if missing
	Tokenizer tokenizer.Tokenizer
	// VocabularyFile is copied to Folder. It is "" if the tokenizer has no vocabulary file.
	VocabularyFile string

	FollowLinks bool // follow links that leave a folder
	IgnoreNames bool // ignore the parts in names: all inputs are for training, except for EvalFraction

	Lines Lines
	// field of JSON lines, or column of tables, with the text; "" means "text"; must be "" if no input has fields or
	// columns
	Field string
	// line that ends a document of plain text; nil: no separator; empty but not nil: an empty line; must be nil if no
	// input is plain text
	Separator []byte

	// SkipFaulty leaves out JSON lines that have no text in Field, and counts them. Otherwise such a line is an error.
	SkipFaulty bool

	ShardTokens int64 // number of tokens of each shard except the last one; 0 means 100,000,000
	// EvalFraction is the fraction of the input for evaluation, at least 0 and below 1. In JSON lines and in text with
	// separators, documents are chosen at random. In other plain text, the end of each file is used.
	EvalFraction float64

	Workers  int                     // number of goroutines that encode; 0 means one per processor
	Progress func(done, total int64) // called with bytes of the input files; may be nil

	// Tests use smaller values.
	chunk   int   // size of a chunk in bytes; 0 means chunkBytes
	journal int64 // bytes of text between entries of the journal; 0 means journalBytes
}

// The errors of the options and of the output. Errors of the input are *data.Fault.
var (
	ErrSettings = errors.New("the folder contains the result of a conversion with other settings")
	ErrUnused   = errors.New("an option has no effect on the inputs")
	ErrWrite    = errors.New("write token shards")
)

// MostSeparatorBytes is the largest permitted size of Options.Separator in bytes.
const MostSeparatorBytes = 1024

// Settings contains the options that affect the result.
type Settings struct {
	Tokenizer    string   `json:"tokenizer"`
	Vocabulary   int      `json:"vocabulary_size"`
	VocabularyID string   `json:"vocabulary_sha256,omitempty"`
	EndOfText    int32    `json:"end_of_text"`
	Field        string   `json:"field"`
	Separator    *string  `json:"separator"`
	ShardTokens  int64    `json:"shard_tokens"`
	EvalFraction float64  `json:"val_fraction"`
	SkipFaulty   bool     `json:"skip_bad_lines,omitempty"`
	Sources      []Source `json:"sources"`
}

// check checks the options and sets defaults.
func (o *Options) check() error {
	if o.Tokenizer == nil {
		return errors.New("tokenize: no tokenizer")
	}
	if o.ShardTokens == 0 {
		o.ShardTokens = 100_000_000
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.chunk == 0 {
		o.chunk = chunkBytes
	}
	if o.journal == 0 {
		o.journal = journalBytes
	}
	switch {
	case len(o.Inputs) == 0:
		return errors.New("tokenize: no input files")
	case o.ShardTokens < 1:
		return fmt.Errorf("tokenize: %d tokens per shard, want at least 1", o.ShardTokens)
	case !(o.EvalFraction >= 0 && o.EvalFraction < 1):
		return fmt.Errorf("tokenize: the fraction for evaluation is %v, want 0 to below 1", o.EvalFraction)
	case len(o.Separator) > MostSeparatorBytes:
		return fmt.Errorf("tokenize: got a separator of %d bytes, want at most %d", len(o.Separator),
			MostSeparatorBytes)
	case strings.ContainsAny(string(o.Separator), "\r\n"):
		return fmt.Errorf("tokenize: separator: got %q, want no line breaks", o.Separator)
	case o.Workers < 1 || o.Workers > 1024:
		return fmt.Errorf("tokenize: %d workers, want 1 to 1024", o.Workers)
	}
	return nil
}

// settings returns the options that affect the result.
func (o *Options) settings(found Sources) (Settings, error) {
	sources := found.List
	fieldIsSet := o.Field != ""
	if !fieldIsSet {
		o.Field = "text"
	}
	hasLines := slices.ContainsFunc(sources, func(s Source) bool { return s.Lines })
	hasPlain := slices.ContainsFunc(sources, func(s Source) bool { return !s.Lines })
	switch {
	case fieldIsSet && !hasLines:
		return Settings{}, fmt.Errorf("%w: field: got %q, but no input has JSON lines or a table; the first input is %s",
			ErrUnused, o.Field, sources[0].Path)
	case o.EvalFraction > 0 && found.EvalFrom != "":
		return Settings{},
			fmt.Errorf("%w: val-fraction: got %v, but the names of the inputs state the evaluation part (%s)",
				ErrUnused, o.EvalFraction, found.EvalFrom)
	case o.SkipFaulty && !hasLines:
		return Settings{}, fmt.Errorf("%w: bad-lines: no input has JSON lines or a table; the first input is %s",
			ErrUnused, sources[0].Path)
	case o.Separator != nil && !hasPlain:
		return Settings{}, fmt.Errorf("%w: separator: got %q, but all inputs have JSON lines or tables; the first input is %s",
			ErrUnused, o.Separator, sources[0].Path)
	}
	s := Settings{Tokenizer: o.Tokenizer.Name(), Vocabulary: o.Tokenizer.Vocabulary(),
		EndOfText: o.Tokenizer.EndOfText(),
		Field:     o.Field, SkipFaulty: o.SkipFaulty, ShardTokens: o.ShardTokens, EvalFraction: o.EvalFraction,
		Sources: sources}
	if sum := o.Tokenizer.VocabularySum(); sum != [32]byte{} {
		s.VocabularyID = fmt.Sprintf("%x", sum)
	}
	if o.Separator != nil {
		text := string(o.Separator)
		s.Separator = &text
	}
	return s, nil
}

// differs returns an error that describes the first difference between s and want.
func (s Settings) differs(want Settings) error {
	a, b := reflect.ValueOf(s), reflect.ValueOf(want)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			got, _ := json.Marshal(x) // both values were or will be written as JSON
			now, _ := json.Marshal(y)
			return fmt.Errorf("%w: %s was %.200s, now %.200s", ErrSettings, a.Type().Field(i).Tag.Get("json"), got, now)
		}
	}
	return nil
}
