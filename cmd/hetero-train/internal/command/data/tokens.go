package data

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// TokenShard is the description of a token shard by data inspect and data verify.
type TokenShard struct {
	Part       string `json:"part"`
	File       string `json:"file"`
	Format     string `json:"format,omitempty"`
	Tokens     int64  `json:"tokens,omitempty"`
	TokenBytes int    `json:"token_bytes,omitempty"`
	Tokenizer  string `json:"tokenizer,omitempty"`
	Vocabulary int    `json:"vocabulary_size,omitempty"`
	EndOfText  int32  `json:"end_of_text"` // token that ends a text; -1 if there is none
	// number of documents, from the header or counted by verify
	Documents    int64  `json:"documents,omitempty"`
	SHA256       string `json:"sha256,omitempty"`        // checksum in the header
	Begins       string `json:"begins,omitempty"`        // first characters of the text, if the tokenizer is known
	LargestToken *int32 `json:"largest_token,omitempty"` // largest token that verify found
	Error        string `json:"error,omitempty"`
}

// tokenShards opens the shards at path and calls visit for each. For files without a header, configuration keys
// describe the contents.
func tokenShards(a *cli.App, path string, visit func(t TokenShard, s *tokens.Shard, err error) error) error {
	cfg, err := loadText(a, path, "text", "gpt2")
	if err != nil {
		return err
	}
	found, open, err := parts.FindTokens(cfg)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		files []string
	}{{"train", found.Train}, {"val", found.Eval}} {
		for _, file := range part.files {
			t := TokenShard{Part: part.name, File: file, EndOfText: tokens.NoToken}
			s, err := open.Open(file)
			if err == nil {
				t.Format, t.Tokens, t.TokenBytes, t.Tokenizer = string(s.Format), s.Count, s.TokenBytes, s.Tokenizer
				t.Vocabulary, t.EndOfText, t.Documents = s.Vocabulary, s.EndOfText, s.Documents
				if s.Format == tokens.FormatOwn {
					t.SHA256 = hex.EncodeToString(s.Sum[:])
				}
			}
			if err := errors.Join(visit(t, s, err), closeShard(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

func closeShard(s *tokens.Shard) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// inspectTokens prints the headers of token shards, and the first characters of their text.
func inspectTokens(ctx context.Context, a *cli.App, path string, json bool) error {
	list := []TokenShard{}
	err := tokenShards(a, path, func(t TokenShard, s *tokens.Shard, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			t.Begins, err = beginning(s, path)
		}
		list = append(list, t)
		return err
	})
	if err != nil {
		return exit.Classify(ctx, err)
	}
	if json {
		return show.JSON(a.Env.Stdout, list)
	}
	return showTokens(a.Env.Stdout, list)
}

// beginning returns the first characters of the text in a shard. It returns "" if the tokenizer is unknown, or if its
// vocabulary file is not in the folder of the shard.
func beginning(s *tokens.Shard, path string) (string, error) {
	vocab := ""
	if strings.HasPrefix(s.Tokenizer, "wordpiece") {
		if vocab = filepath.Join(path, "vocab.txt"); !exists(vocab) {
			return "", nil
		}
	}
	k, err := tokenizer.New(s.Tokenizer, vocab)
	if err != nil {
		if fault := new(data.Fault); errors.As(err, &fault) {
			return "", err
		}
		return "", nil // this program does not contain the tokenizer
	}
	if k.VocabularySum() != s.VocabularySum {
		return "",
			&data.Fault{Op: "read vocabulary", Path: vocab, Index: -1,
				Err: fmt.Errorf("got SHA-256 %x, want %[3]x as in the header of shard %[2]s", k.VocabularySum(), s.Path,
					s.VocabularySum)}
	}
	first := make([]int32, min(s.Count, 24))
	if err := s.Read(0, first); err != nil {
		return "", err
	}
	text, err := k.Decode(nil, first)
	return strings.ToValidUTF8(string(text), ""), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func showTokens(w io.Writer, list []TokenShard) error {
	for _, t := range list {
		fmt.Fprintf(w, "%s %s: %s of %s, format %s\n", t.Part, show.Foreign(t.File), show.Count(t.Tokens, "token"),
			show.Count(t.TokenBytes, "byte"), t.Format)
		switch {
		case t.Tokenizer == "":
			fmt.Fprintln(w, "  the file does not name its tokenizer")
		case t.Documents > 0:
			fmt.Fprintf(w, "  tokenizer %s with %s, end-of-text token %d, %s\n", show.Foreign(t.Tokenizer),
				show.Count(t.Vocabulary, "token"), t.EndOfText, show.Count(t.Documents, "document"))
		default:
			fmt.Fprintf(w, "  tokenizer %s with %s, end-of-text token %d\n", show.Foreign(t.Tokenizer),
				show.Count(t.Vocabulary, "token"), t.EndOfText)
		}
		if t.Begins != "" {
			fmt.Fprintf(w, "  begins %q\n", t.Begins)
		}
	}
	var sum int64
	for _, t := range list {
		sum += t.Tokens
	}
	_, err := fmt.Fprintf(w, "%s in %s\n", show.Count(sum, "token"), show.Count(len(list), "shard"))
	return err
}

// VerifiedTokens is the output of command data verify for token shards.
type VerifiedTokens struct {
	Tokens  int64        `json:"tokens"`
	Shards  []TokenShard `json:"shards"`
	Bad     int          `json:"bad"`
	Seconds float64      `json:"seconds"`
}

// verifyTokens reads all tokens of all shards.
func verifyTokens(ctx context.Context, a *cli.App, path string, json bool) error {
	out := VerifiedTokens{Shards: []TokenShard{}}
	begun := time.Now()
	err := tokenShards(a, path, func(t TokenShard, s *tokens.Shard, err error) error {
		if err == nil {
			var sum tokens.Summary
			if sum, err = s.Verify(ctx); err == nil {
				t.LargestToken, t.Documents = &sum.Largest, sum.Documents
			}
		}
		fault := new(data.Fault)
		if err != nil && !errors.As(err, &fault) {
			return err
		}
		if err != nil {
			t.Error = err.Error()
			out.Bad++
		}
		out.Tokens += t.Tokens
		out.Shards = append(out.Shards, t)
		return nil
	})
	if err != nil {
		return exit.Classify(ctx, err)
	}
	out.Seconds = time.Since(begun).Seconds()
	if json {
		err = show.JSON(a.Env.Stdout, out)
	} else {
		err = logVerifiedTokens(a.Env.Stdout, out)
	}
	if err == nil && out.Bad > 0 {
		return exit.With(exit.Data,
			exit.AlreadyShown(fmt.Errorf("%d of %d shards are damaged", out.Bad, len(out.Shards))))
	}
	return err
}

func logVerifiedTokens(w io.Writer, v VerifiedTokens) error {
	for _, t := range v.Shards {
		if t.Error != "" {
			fmt.Fprintf(w, "bad %s %q: %s\n", t.Part, t.File, t.Error)
			continue
		}
		fmt.Fprintf(w, "%s %s: %s, largest token ID %d, %s\n", t.Part, show.Foreign(t.File),
			show.Count(t.Tokens, "token"), *t.LargestToken, show.Count(t.Documents, "document"))
	}
	_, err := fmt.Fprintf(w, "%s in %s read in %.1f s, %d bad\n", show.Count(v.Tokens, "token"),
		show.Count(len(v.Shards), "shard"), v.Seconds, v.Bad)
	return err
}
