package data

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data/huggingface"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// LabelledFile is the output of data inspect and data verify for a file of labelled texts.
type LabelledFile struct {
	Dataset    string         `json:"dataset"`
	File       string         `json:"file"`
	Samples    int            `json:"samples"`
	ByClass    map[string]int `json:"samples_by_class"`
	Characters Spread         `json:"characters"` // number of characters of a sample; the sum for a pair of texts
	// number of tokens of a sample with special tokens; only with data.vocab_file
	Tokens    *Spread `json:"tokens,omitempty"`
	Length    int     `json:"sequence_length,omitempty"` // data.sequence_length; only with data.vocab_file
	Truncated *int    `json:"truncated,omitempty"`       // number of samples that have more than Length tokens
	// fraction of the tokens that are [UNK]; only with data.vocab_file
	Unknown *float64    `json:"unknown,omitempty"`
	Bad     int         `json:"bad"`
	Faults  []LineFault `json:"faults,omitempty"` // at most mostLineFaults faulty lines
}

// LineFault is a line that does not contain a labelled text.
type LineFault struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// mostLineFaults is the largest number of faulty lines that are shown.
const mostLineFaults = 20

// namesLabelled reports whether the arguments name a file of labelled texts. The name of the file decides, unless a
// flag selects the type of the data set, or the file is a list of images.
func namesLabelled(a *cli.App, args []string) bool {
	if len(args) != 1 {
		return false
	}
	for _, o := range slices.Backward(a.Overrides) {
		if o.Key == "data.dataset" {
			return o.Value == parts.LabelledText
		}
	}
	return slices.Contains(tokens.LabelledEnds, filepath.Ext(args[0])) && !huggingface.RecogniseListFile(args[0])
}

// counter counts the tokens of texts.
type counter struct {
	words        *tokenizer.WordPiece // nil: do not count tokens
	encoder      tokenizer.Encoder
	buffer       []int32
	all, unknown int // number of all tokens, and of those that are [UNK]
}

// count returns the number of tokens of a text.
func (c *counter) count(text []byte) int {
	if c.words == nil {
		return 0
	}
	if c.encoder == nil {
		c.encoder = c.words.NewEncoder()
	}
	c.buffer = c.encoder.Append(c.buffer[:0], text)
	c.all += len(c.buffer)
	for _, token := range c.buffer {
		if token == c.words.Specials.Unknown {
			c.unknown++
		}
	}
	return len(c.buffer)
}

// readLabelled reads all lines of a file of labelled texts. Configuration keys set the names of the columns.
func readLabelled(ctx context.Context, a *cli.App, path string) (out LabelledFile, err error) {
	cfg, err := loadText(a, path, parts.LabelledText, "bert_base")
	if err != nil {
		return out, err
	}
	o, warning, ok, err := parts.LabelledOptions(cfg)
	if err != nil {
		return out, err
	}
	if warning != "" {
		log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
		if err != nil {
			return out, err
		}
		log.Warn(warning)
	}
	if !ok {
		return out, exit.Usagef("data.dataset: got %s, want %s for %s", cfg.Data.Dataset, parts.LabelledText, path)
	}
	out = LabelledFile{Dataset: parts.LabelledText, File: path, ByClass: map[string]int{}}
	var characters, lengths []int
	c := counter{words: o.Tokenizer}
	specials := 2
	if o.Second != "" {
		specials = 3
	}
	err = o.EachLabelled(ctx, func(l tokens.LabelledLine) error {
		if l.Err != nil {
			if out.Bad++; out.Bad <= mostLineFaults {
				out.Faults = append(out.Faults, LineFault{l.Number, l.Err.Error()})
			}
			return nil
		}
		out.Samples++
		out.ByClass[l.Label]++
		characters = append(characters, utf8.RuneCount(l.Text)+utf8.RuneCount(l.Second))
		lengths = append(lengths, c.count(l.Text)+c.count(l.Second)+specials)
		return nil
	})
	if err != nil {
		return out, err
	}
	if out.Samples > 0 {
		out.Characters = spreadOf(characters)
	}
	if o.Tokenizer != nil && out.Samples > 0 {
		spread, long := spreadOf(lengths), 0
		for _, n := range lengths {
			if n > o.Length {
				long++
			}
		}
		fraction := float64(c.unknown) / float64(max(c.all, 1))
		out.Tokens, out.Length, out.Truncated, out.Unknown = &spread, o.Length, &long, &fraction
	}
	return out, nil
}

// showLabelled prints a summary of a file of labelled texts. It returns an error if training cannot use the file: if it
// has faulty lines, no samples or only one class.
func showLabelled(ctx context.Context, a *cli.App, path string, json bool) error {
	f, err := readLabelled(ctx, a, path)
	if err != nil {
		return exit.Classify(ctx, err)
	}
	if json {
		err = show.JSON(a.Env.Stdout, f)
	} else {
		err = f.write(a.Env.Stdout)
	}
	switch {
	case err != nil:
		return err
	case f.Bad > 0:
		return exit.With(exit.Data, exit.AlreadyShown(fmt.Errorf("%d lines are faulty", f.Bad)))
	case len(f.ByClass) < 2:
		return exit.With(exit.Data, fmt.Errorf("%s: %d samples of %d classes, want at least two classes", path,
			f.Samples, len(f.ByClass)))
	}
	return nil
}

func (f LabelledFile) write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d labelled texts of %d classes\n", show.Foreign(f.File), f.Samples, len(f.ByClass))
	byCount := slices.SortedFunc(maps.Keys(f.ByClass), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.ByClass[b], f.ByClass[a]), cmp.Compare(a, b))
	})
	const most = 20 // largest number of classes that are shown
	for _, class := range byCount[:min(len(byCount), most)] {
		fmt.Fprintf(w, "  %s: %d\n", show.Foreign(class), f.ByClass[class])
	}
	if len(byCount) > most {
		fmt.Fprintf(w, "  and %d other classes\n", len(byCount)-most)
	}
	if f.Samples > 0 {
		fmt.Fprintf(w, "characters of a sample: %d to %d, median %d\n", f.Characters.Min, f.Characters.Max,
			f.Characters.Median)
	}
	if f.Tokens != nil {
		fmt.Fprintf(w, "tokens of a sample: %d to %d, median %d; %d samples have more than data.sequence_length = %d\n",
			f.Tokens.Min, f.Tokens.Max, f.Tokens.Median, *f.Truncated, f.Length)
		fmt.Fprintf(w, "%.2f %% of the tokens are [UNK]\n", 100**f.Unknown)
	}
	for _, l := range f.Faults {
		fmt.Fprintf(w, "bad line %d: %s\n", l.Line, l.Error)
	}
	if f.Bad > len(f.Faults) {
		fmt.Fprintf(w, "and %d other bad lines\n", f.Bad-len(f.Faults))
	}
	_, err := fmt.Fprintf(w, "%d bad lines\n", f.Bad)
	return err
}
