package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	names     string
	badLines  string
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
file or a folder of files: plain text (.txt) or JSON lines (.jsonl, .ndjson), uncompressed or compressed (.gz, .zst), or a data set
of Hugging Face (Arrow or Parquet files), whose column --field has the texts. An end-of-text token follows each document. If the names of files or folders state parts (train, val, test), the shards have these parts. To continue an interrupted conversion, repeat the command. See docs/text.md.`,
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
				// The copy is not nil: with an empty separator, an empty line ends a document. With nil, each file
				// would be one document.
				f.o.Separator = append([]byte{}, f.separator...)
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
	flags.StringVar(&f.format, "format", "auto",
		"format of the files: auto, text or jsonl; auto: the file name gives the format")
	flags.StringVar(&f.field, "field", "text", "`name` of the field of JSON lines, or of the column of tables, with the text")
	flags.StringVar(&f.separator, "separator", "",
		"`LINE` that ends a document of plain text; '': an empty line; default: each file is one document")
	flags.StringVar(&f.names, "names", "auto",
		"`auto|off`; auto: names of files and folders state parts (train, val, test); off: names have no meaning")
	flags.StringVar(&f.badLines, "bad-lines", "error",
		"`error|skip`: what to do with a JSON line that has no text in the field of --field")
	flags.BoolVar(&f.o.FollowLinks, "follow-links", true,
		"follow symbolic links that leave a folder; false: such a link is an error")
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
	if err := f.checkCase(log); err != nil {
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
	out := Tokenized{Folder: f.o.Folder, Manifest: r.Manifest, Already: r.Already, Resumed: r.Resumed,
		Seconds: time.Since(begun).Seconds()}
	if f.o.EvalFraction > 0 && len(out.Eval) == 0 {
		log.Warn("no document was selected for evaluation, because there are too few documents: raise --val-fraction")
	}
	logInputs(log, r)
	if f.json {
		return show.JSON(a.Env.Stdout, out)
	}
	return logTokenized(a.Env.Stdout, out)
}

// checkCase refuses to convert text to lower case if the vocabulary has capital letters, because words with capital
// letters would be unknown.
func (f *tokenizeFlags) checkCase(log *slog.Logger) error {
	w, ok := f.o.Tokenizer.(*tokenizer.WordPiece)
	if !ok {
		return nil
	}
	switch c := w.CaseOf(f.o.VocabularyFile); {
	case !c.Known || c.Cased == w.Cased():
	case c.Cased:
		return exit.Usagef(
			"--tokenizer wordpiece converts text to lower case, but %s: want --tokenizer wordpiece-cased", c.Reason)
	default:
		log.Warn(fmt.Sprintf("--tokenizer wordpiece-cased keeps capital letters, but %s: words with capital letters may become [UNK]; --tokenizer wordpiece converts text to lower case",
			c.Reason))
	}
	return nil
}

// logInputs warns of inputs that are used in an unexpected way or not at all, and of text that does not fit the
// vocabulary.
func logInputs(log *slog.Logger, r text.Result) {
	if s := r.Sources; s.EvalFrom != "" {
		log.Info("the names of the inputs state their parts; --names off ignores the names", "evaluation", s.EvalFrom)
	}
	if n := len(r.Sources.Unused); n > 0 {
		log.Warn(fmt.Sprintf("not converted: %s of part test, because there is a validation part",
			show.Count(n, "file")), "first", r.Sources.Unused[0])
	}
	if n := len(r.Sources.Skipped); n > 0 {
		log.Warn(fmt.Sprintf("skipped: %s whose names do not end as those of text files", show.Count(n, "file")),
			"first", r.Sources.Skipped[0])
	}
	if r.Faulty > 0 {
		log.Warn(fmt.Sprintf("skipped: %s without text", show.Count(r.Faulty, "JSON line")), "first", r.Fault)
	}
	if all := text.Tokens(r.Train) + text.Tokens(r.Eval); float64(r.Unknown) > parts.MostUnknown*float64(all) {
		log.Warn(fmt.Sprintf("%.1f %% of the tokens are [UNK]: the vocabulary does not fit the text, and a model cannot tell these words apart",
			100*float64(r.Unknown)/float64(all)))
	}
}

// check returns an error for invalid values of flags.
func (f *tokenizeFlags) check() error {
	var known bool
	f.o.Lines, known = lineFormats[f.format]
	f.o.IgnoreNames, f.o.SkipFaulty = f.names == "off", f.badLines == "skip"
	switch {
	case f.o.Folder == "":
		return exit.Usagef("data tokenize: -o is missing, want -o DIR with the output folder")
	case !slices.Contains(tokenizer.Names, f.tokenizer):
		return exit.Usagef("--tokenizer: got %q, want one of %s", f.tokenizer, strings.Join(tokenizer.Names, ", "))
	case !known:
		return exit.Usagef("--format: got %q, want auto, text or jsonl", f.format)
	case f.names != "auto" && f.names != "off":
		return exit.Usagef("--names: got %q, want auto or off", f.names)
	case f.badLines != "error" && f.badLines != "skip":
		return exit.Usagef("--bad-lines: got %q, want error or skip", f.badLines)
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

func logTokenized(w io.Writer, t Tokenized) error {
	if t.Already {
		fmt.Fprintf(w, "%s is complete already\n", t.Folder)
	}
	train, eval := text.Tokens(t.Train), text.Tokens(t.Eval)
	fmt.Fprintf(w, "%s: %s of %s, tokenizer %s with %s\n", t.Folder, show.Count(train+eval, "token"),
		show.Count(t.Documents, "document"),
		t.Settings.Tokenizer, show.Count(t.Settings.Vocabulary, "token"))
	for _, part := range []struct {
		name   string
		shards []text.Shard
	}{{"train", t.Train}, {"val", t.Eval}} {
		if len(part.shards) > 0 {
			fmt.Fprintf(w, "  %s: %s, %s\n", part.name, show.Count(text.Tokens(part.shards), "token"),
				filesOf(t.Folder, part.shards))
		}
	}
	if t.Unknown > 0 {
		fmt.Fprintf(w, "  %s [UNK]: %.2f %%\n", show.Count(t.Unknown, "token"),
			100*float64(t.Unknown)/float64(train+eval))
	}
	if t.Empty > 0 {
		fmt.Fprintf(w, "  %s without text: skipped\n", show.Count(t.Empty, "document"))
	}
	if !t.Already && !t.Resumed {
		_, err := fmt.Fprintf(w, "  %.1f s, %.2f million tokens/s\n", t.Seconds,
			float64(train+eval)/max(t.Seconds, 1e-9)/1e6)
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
