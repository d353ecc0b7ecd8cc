package inference

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// TextPrediction is the prediction for one line of text. Each list begins with the most probable class or token.
type TextPrediction struct {
	File  string         `json:"file"`
	Line  int            `json:"line"`
	Top   []guess        `json:"top,omitempty"`   // predicted classes
	Next  []tokenGuess   `json:"next,omitempty"`  // tokens that may follow the text
	Masks [][]tokenGuess `json:"masks,omitempty"` // tokens for each [MASK]
	Error string         `json:"error,omitempty"` // reason why there is no prediction
}

// tokenGuess is a token and its probability.
type tokenGuess struct {
	Token       string  `json:"token"`
	ID          int     `json:"id"`
	Probability float64 `json:"probability"`
}

// typed is a line of text with its tokens and the positions at which the model predicts tokens.
type typed struct {
	TextPrediction
	text  tokens.GivenText
	wants []int // positions; nil if the model predicts a class
}

// reader converts lines of text into samples for a model.
type reader struct {
	words   *tokenizer.WordPiece // tokenizer of models with segments; nil for GPT-2
	text    tokenizer.Tokenizer
	encoder tokenizer.Encoder
	classes bool
	pairs   bool
	length  int // largest number of tokens of a sample
}

// predictText prints a prediction for each line of the files.
func (m *savedModel) predictText(ctx context.Context, f *predictFlags, stdin io.Reader, args []string) error {
	vocabulary, positions, err := m.tableSizes()
	if err != nil {
		return err
	}
	r, err := m.newReader(f, vocabulary, positions)
	if err != nil {
		return err
	}
	var lines []typed
	for _, arg := range args {
		if lines, err = r.read(ctx, lines, arg, stdin); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return exit.With(exit.Data, errors.New("predict: the files have no text"))
	}
	splits := &parts.TokenSplits{Vocabulary: vocabulary, Masked: r.words != nil}
	splits.Pairs = parts.Pairs(&m.run.Process.Cfg.Model) && !r.classes
	given := tokens.Given{Class: r.classes, Padded: r.words != nil, Pairs: splits.Pairs}
	if r.words != nil {
		given.Pad = r.words.Specials.Pad
	}
	var asked []*typed
	for i := range lines {
		if lines[i].Error == "" {
			asked = append(asked, &lines[i])
			given.Texts = append(given.Texts, lines[i].text)
			given.Length = max(given.Length, len(lines[i].text.Tokens))
		}
	}
	if len(asked) > 0 {
		splits.Length = given.Length
		if err := m.runText(ctx, f, r, splits, given, asked); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(m.run.Process.Opts.Env.Stdout)
	for _, l := range lines {
		if err := l.write(out, m, f.json); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if bad := len(lines) - len(asked); bad > 0 {
		return exit.With(exit.Data, fmt.Errorf("%d of %d lines have no prediction", bad, len(lines)))
	}
	return nil
}

// mostScores is the largest number of probabilities of a batch: 256 MiB in f32. Larger batches are hardly faster.
const mostScores = 64 << 20

// runText computes the predictions of the samples.
func (m *savedModel) runText(ctx context.Context, f *predictFlags, r *reader, splits *parts.TokenSplits,
	given tokens.Given, asked []*typed) error {
	outputs := m.classes
	if outputs == 0 {
		outputs = splits.Vocabulary
	}
	n := min(m.samplesAtOnce(&f.savedFlags), given.Len())
	if m.classes == 0 && f.batch == 0 {
		n = max(1, min(n, mostScores/(given.Length*outputs)))
	}
	if err := m.openText(ctx, n, splits, false); err != nil {
		return err
	}
	loader, err := m.run.NewLoader(data.Options{Samples: given, BatchSize: n, Evaluate: true,
		Workers: m.run.Process.Cfg.Data.Workers})
	if err != nil {
		return err
	}
	probabilities := make([]float64, outputs)
	for {
		b, err := loader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := m.predictor.Run(b); err != nil {
			b.Release()
			return err
		}
		for i := range b.N {
			l := asked[b.IDs[i]]
			if l.wants == nil {
				if err := m.predictor.Probabilities(i, probabilities); err != nil {
					b.Release()
					return fmt.Errorf("%s: %w", m.checkpoint.Path, err)
				}
				l.Top = m.named(best(probabilities, f.top))
				continue
			}
			for _, at := range l.wants {
				if err := m.predictor.Probabilities(i*given.Length+at, probabilities); err != nil {
					b.Release()
					return fmt.Errorf("%s: %w", m.checkpoint.Path, err)
				}
				top := r.tokens(best(probabilities, f.top))
				if r.words == nil {
					l.Next = top
				} else {
					l.Masks = append(l.Masks, top)
				}
			}
		}
		b.Release()
	}
}

// newReader opens the tokenizer of the model.
func (m *savedModel) newReader(f *predictFlags, vocabulary, positions int) (r *reader, err error) {
	r = &reader{classes: m.classes > 0, length: positions}
	if !parts.Masks(&m.run.Process.Cfg.Model) {
		r.text, err = m.tokenizer("predict", "", f.vocab, vocabulary)
	} else {
		if r.words, err = parts.VocabularyOf(m.run.Process.Cfg, f.vocab, m.trained); err != nil {
			return nil, err
		}
		r.text = r.words
		if r.classes {
			if err := parts.CheckPairs(m.run.Process.Cfg); err != nil {
				return nil, err
			}
			length, pairs := parts.SampleOf(m.run.Process.Cfg)
			if r.pairs = pairs; length > 0 {
				r.length = min(length, positions)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if r.text.Vocabulary() > vocabulary {
		return nil,
			exit.Usagef("--vocab: tokenizer %s has %d tokens, but the vocabulary of the model in %s has only %d",
				r.text.Name(), r.text.Vocabulary(), m.checkpoint.Path, vocabulary)
	}
	r.encoder = r.text.NewEncoder()
	return r, nil
}

const (
	mostTextBytes = 1 << 30  // maximum size of a file of lines
	mostLineBytes = 16 << 20 // maximum size of a line
)

// read appends the lines of a file to lines, without empty lines. The name "-" selects standard input.
func (r *reader) read(ctx context.Context, lines []typed, name string, stdin io.Reader) ([]typed, error) {
	in := stdin
	if name != "-" {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return nil, notAFile(name, info.Mode())
		}
		file, info, err := regular.Open(name)
		if err != nil {
			return nil, exit.Usagef("predict: %w", err)
		}
		defer file.Close() // no error: the file was only read
		if info.Size() > mostTextBytes {
			return nil, exit.Usagef("predict: %s has %d bytes, want at most %d: split the file", name, info.Size(),
				mostTextBytes)
		}
		in = file
	}
	limited := &io.LimitedReader{R: in, N: mostTextBytes + 1}
	scanner := bufio.NewScanner(limited)
	scanner.Buffer(nil, mostLineBytes)
	number, before := 1, len(lines)
	for ; scanner.Scan(); number++ {
		if limited.N == 0 {
			return nil, exit.Usagef("predict: %s has more than %d bytes: split the text", name, mostTextBytes)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line := bytes.TrimRight(scanner.Bytes(), "\r")
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // some editors on Windows write a byte order mark
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(lines) == before {
			if format := tableOf(name, line); format != "" {
				return nil, exit.With(exit.Data, fmt.Errorf("predict: %s has %s, want a text on each line without other syntax: write the texts to a file with the suffix .txt",
					name, format))
			}
		}
		l := typed{TextPrediction: TextPrediction{File: name, Line: number}}
		if err := r.encode(&l, line); err != nil {
			l.Error = fmt.Sprintf("%s:%d: %v", name, number, err)
		}
		lines = append(lines, l)
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, exit.With(exit.Data, fmt.Errorf("predict: %s:%d: the line has more than %d bytes", name, number,
			mostLineBytes))
	} else if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("predict: read %s: %w", name, err))
	}
	return lines, nil
}

// tableOf returns the format of a file if its name or its first line shows that it is a table. It returns "" if the
// file may be plain text.
func tableOf(name string, line []byte) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jsonl", ".ndjson":
		return "JSON lines"
	case ".json":
		return "JSON"
	case ".csv":
		return "comma-separated values"
	case ".parquet":
		return "a Parquet table"
	}
	if line = bytes.TrimSpace(line); line[0] == '{' && json.Valid(line) {
		return "JSON lines"
	}
	return ""
}

// encode converts a line to tokens and stores them in l.
func (r *reader) encode(l *typed, line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("the line is not UTF-8")
	}
	if r.words == nil {
		all := r.encoder.Append(nil, line)
		l.text.Tokens = all[max(0, len(all)-r.length):] // the model reads only the last tokens
		l.text.Segments = make([]int32, len(l.text.Tokens))
		l.wants = []int{len(l.text.Tokens) - 1}
		return nil
	}
	if r.classes {
		first, second, _ := bytes.Cut(line, []byte("\t"))
		tabs := 0
		if r.pairs {
			tabs = 1
		}
		if got := bytes.Count(line, []byte("\t")); got != tabs {
			return fmt.Errorf("got %d tabs, want %s", got,
				map[bool]string{true: "two texts with a tab between them", false: "one text without tabs"}[r.pairs])
		}
		l.text.Tokens, l.text.Segments = tokens.Pair(r.words, r.encoder, first, second, r.pairs, r.length)
		return nil
	}
	special := r.words.Specials
	all := []int32{special.Class}
	for i, part := range bytes.Split(line, []byte(maskWord)) {
		if i > 0 {
			l.wants = append(l.wants, len(all))
			all = append(all, special.Mask)
		}
		all = r.encoder.Append(all, part)
	}
	all = append(all, special.Separator)
	if len(l.wants) == 0 {
		return fmt.Errorf("the line has no %s", maskWord)
	}
	if len(all) > r.length {
		return fmt.Errorf("the line has %d tokens, want at most %d", len(all)-2, r.length-2)
	}
	l.text.Tokens, l.text.Segments = all, make([]int32, len(all))
	return nil
}

// maskWord marks the place of a token that the model shall predict.
const maskWord = "[MASK]"

// tokens returns the guesses with the texts of their tokens.
func (r *reader) tokens(top []guess) []tokenGuess {
	out := make([]tokenGuess, len(top))
	for i, g := range top {
		out[i] = tokenGuess{ID: g.Label, Probability: g.Probability}
		if text, err := r.text.Decode(nil, []int32{int32(g.Label)}); err == nil {
			out[i].Token = strings.ToValidUTF8(string(text), "\uFFFD")
		} else { // the tokenizer has no token for this row of the token table
			out[i].Token = fmt.Sprintf("token %d", g.Label)
		}
	}
	return out
}

// write prints a prediction.
func (l *typed) write(w io.Writer, m *savedModel, asJSON bool) error {
	switch {
	case asJSON:
		return show.JSON(w, l.TextPrediction)
	case l.Error != "":
		m.run.Process.Opts.Log.Warn(l.Error)
		return nil
	}
	var texts []string
	if m.classes > 0 {
		texts = []string{rankedClasses(l.Top)}
	} else {
		lists := l.Masks
		if lists == nil {
			lists = [][]tokenGuess{l.Next}
		}
		for _, top := range lists { // quote the tokens, because they may begin with a space
			texts = append(texts, ranked(top, func(g tokenGuess) (string, float64) {
				return strconv.Quote(g.Token), g.Probability
			}))
		}
	}
	_, err := fmt.Fprintf(w, "%s:%d: %s\n", show.Foreign(cmp.Or(filepath.Clean(l.File), "-")), l.Line,
		strings.Join(texts, " | "))
	return err
}
