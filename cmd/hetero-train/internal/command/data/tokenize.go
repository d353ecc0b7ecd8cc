package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/text"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// tokenizeFlags are the flags of command data tokenize.
type tokenizeFlags struct {
	o         text.Options
	tokenizer string
	format    string
	field     string
	separator string
	json      bool
}

// lineFormats are the values of --format.
var lineFormats = map[string]text.Lines{"auto": text.LinesBySuffix, "jsonl": text.LinesAlways, "text": text.LinesNever}

func newDataTokenize(a *cli.App) *cobra.Command {
	f := new(tokenizeFlags)
	cmd := &cobra.Command{
		Use:   "tokenize IN... -o DIR",
		Short: "Convert text to token shards for training",
		Long: `Convert text files to token shards in DIR. The command writes train-000000.bin, val-000000.bin and so on, and dataset.json. IN is a
file or a folder of files: plain text (.txt) or JSON lines (.jsonl, .ndjson), uncompressed or compressed (.gz, .zst). An end-of-text
token follows each document. To continue an interrupted conversion, repeat the command. See docs/text.md.`,
		Example: `  hetero-train data tokenize tinyshakespeare.txt -o shakespeare --val-fraction 0.1
  hetero-train data tokenize 'corpus/' -o shards --tokenizer wordpiece --vocab vocab.txt --separator ''
  hetero-train data tokenize web.jsonl.zst -o web --field content --val-fraction 0.001`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("%s: no input, want text files or folders", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.o.Inputs = args
			if cmd.Flags().Changed("field") {
				if f.field == "" {
					return exit.Usagef("--field: got an empty name, want the field with the text")
				}
				f.o.Field = f.field
			}
			if cmd.Flags().Changed("separator") {
				f.o.Separator = append([]byte{}, f.separator...) // not nil: with an empty separator, an empty line ends a document; nil means that each file is one document
			}
			return tokenize(cmd.Context(), a, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.o.Folder, "output", "o", "", "`DIR` to write")
	flags.StringVar(&f.tokenizer, "tokenizer", "gpt2", "tokenizer: "+strings.Join(tokenizer.Names, ", "))
	flags.StringVar(&f.o.VocabularyFile, "vocab", "", "`FILE` with the vocabulary of wordpiece: one token per line")
	flags.Int64Var(&f.o.ShardTokens, "shard-tokens", 100_000_000, "number of `tokens` per shard")
	flags.Float64Var(&f.o.EvalFraction, "val-fraction", 0, "`fraction` of the text to hold out for evaluation; with JSON lines or --separator: random documents; otherwise: the end of each file")
	flags.StringVar(&f.format, "format", "auto", "format of the files: auto, text or jsonl; auto: the file name gives the format")
	flags.StringVar(&f.field, "field", "text", "`name` of the field with the text in JSON lines")
	flags.StringVar(&f.separator, "separator", "", "`LINE` that ends a document of plain text; '': an empty line; default: each file is one document")
	flags.IntVar(&f.o.Workers, "workers", 0, "number of goroutines that encode; 0: one per CPU")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	return cli.WithoutConfig(cmd, "its flags describe the conversion")
}

// Tokenized is the output of data tokenize --json.
type Tokenized struct {
	Folder string `json:"folder"`
	text.Manifest
	Already bool    `json:"complete_before"`
	Resumed bool    `json:"resumed"`
	Seconds float64 `json:"seconds"`
}

func tokenize(ctx context.Context, a *cli.App, f *tokenizeFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	var err error
	if f.o.Tokenizer, err = tokenizer.New(f.tokenizer, f.o.VocabularyFile); err != nil {
		if fault := new(data.Fault); errors.As(err, &fault) {
			return exit.With(exit.Data, err)
		}
		return exit.Usagef("data tokenize: %w", err)
	}
	log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
	if err != nil {
		return err
	}
	f.o.Progress = parts.ProgressLog(log, "tokenizing")
	begun := time.Now()
	r, err := text.Tokenize(ctx, f.o)
	switch {
	case errors.Is(err, text.ErrUnused):
		return exit.Usagef("data tokenize: %w; leave the flag out, or set --format", err)
	case errors.Is(err, text.ErrSettings):
		return exit.Usagef("data tokenize -o %s: %w; choose another folder, or delete this one", f.o.Folder, err)
	case errors.Is(err, text.ErrWrite):
		return exit.With(exit.FolderCode(err), err)
	case ctx.Err() != nil && err != nil:
		log.Warn("tokenizing was interrupted; the same command continues", "folder", f.o.Folder)
		return exit.Classify(ctx, err)
	case err != nil:
		return exit.Classify(ctx, err)
	}
	out := Tokenized{Folder: f.o.Folder, Manifest: r.Manifest, Already: r.Already, Resumed: r.Resumed, Seconds: time.Since(begun).Seconds()}
	if f.o.EvalFraction > 0 && len(out.Eval) == 0 {
		log.Warn("no document was selected for evaluation, because there are too few documents: raise --val-fraction")
	}
	if f.json {
		return show.JSON(a.Env.Stdout, out)
	}
	return sayTokenized(a.Env.Stdout, out)
}

// check returns an error for invalid values of flags.
func (f *tokenizeFlags) check() error {
	var known bool
	f.o.Lines, known = lineFormats[f.format]
	switch {
	case f.o.Folder == "":
		return exit.Usagef("data tokenize: -o is missing, want -o DIR with the output folder")
	case !slices.Contains(tokenizer.Names, f.tokenizer):
		return exit.Usagef("--tokenizer: got %q, want one of %s", f.tokenizer, strings.Join(tokenizer.Names, ", "))
	case !known:
		return exit.Usagef("--format: got %q, want auto, text or jsonl", f.format)
	case f.o.ShardTokens < 1:
		return exit.Usagef("--shard-tokens: got %d, want at least 1", f.o.ShardTokens)
	case !(f.o.EvalFraction >= 0 && f.o.EvalFraction < 1):
		return exit.Usagef("--val-fraction: got %v, want 0 to below 1", f.o.EvalFraction)
	case len(f.separator) > text.MostSeparatorBytes:
		return exit.Usagef("--separator: got %d bytes, want at most %d", len(f.separator), text.MostSeparatorBytes)
	case strings.ContainsAny(f.separator, "\r\n"):
		return exit.Usagef("--separator: got %q, want no line breaks", f.separator)
	case f.o.Workers < 0 || f.o.Workers > 1024:
		return exit.Usagef("--workers: got %d, want 0 to 1024", f.o.Workers)
	}
	return nil
}

func sayTokenized(w io.Writer, t Tokenized) error {
	if t.Already {
		fmt.Fprintf(w, "%s is complete already\n", t.Folder)
	}
	train, eval := text.Tokens(t.Train), text.Tokens(t.Eval)
	fmt.Fprintf(w, "%s: %s of %s, tokenizer %s with %s\n", t.Folder, show.Count(train+eval, "token"), show.Count(t.Documents, "document"),
		t.Settings.Tokenizer, show.Count(t.Settings.Vocabulary, "token"))
	for _, part := range []struct {
		name   string
		shards []text.Shard
	}{{"train", t.Train}, {"val", t.Eval}} {
		if len(part.shards) > 0 {
			fmt.Fprintf(w, "  %s: %s, %s\n", part.name, show.Count(text.Tokens(part.shards), "token"), filesOf(t.Folder, part.shards))
		}
	}
	if t.Empty > 0 {
		fmt.Fprintf(w, "  %s without text: skipped\n", show.Count(t.Empty, "document"))
	}
	if !t.Already && !t.Resumed {
		_, err := fmt.Fprintf(w, "  %.1f s, %.2f million tokens/s\n", t.Seconds, float64(train+eval)/max(t.Seconds, 1e-9)/1e6)
		return err
	}
	return nil
}

// filesOf returns the names of the first and the last shard.
func filesOf(folder string, shards []text.Shard) string {
	first := filepath.Join(folder, shards[0].File)
	if len(shards) == 1 {
		return first
	}
	return fmt.Sprintf("%d shards, %s to %s", len(shards), first, shards[len(shards)-1].File)
}
