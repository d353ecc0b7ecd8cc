package text

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// naive splits a text into documents by a simple algorithm.
func naive(text string, separator []byte) (documents []string) {
	if separator == nil {
		documents = []string{text}
	} else {
		current := ""
		for line := range strings.Lines(text) {
			if strings.TrimRight(line, "\r\n") == string(separator) {
				documents = append(documents, current)
				current = ""
			} else {
				current += line
			}
		}
		documents = append(documents, current)
	}
	return slices.DeleteFunc(documents, func(d string) bool { return strings.TrimSpace(d) == "" })
}

// cutSeeds are texts. Each has a chunk size, relative to the smallest size, and a kind of separator.
var cutSeeds = []struct {
	text        string
	chunk, kind uint8
}{
	{"one\n\ntwo 日本語\n\n\nthree", 16, 1},
	{"a b\nX\nc d\n", 20, 2},
	{"\xff", 16, 0},
	{"\ufeffX\na", 0, 2},
	{" \n\n", 16, 1},
}

// cutOptions returns options that tokenize the file at path in.
func cutOptions(in string, chunk, kind uint8) Options {
	return Options{Inputs: []string{in}, Tokenizer: tokenizer.Bytes(),
		Separator: [][]byte{nil, {}, []byte("X")}[kind%3], chunk: 8 + int(chunk)}
}

// checkCut compares the tokens of a text with those of naive. A text that is not UTF-8 must cause a fault. A text
// without documents may cause one.
func checkCut(t *testing.T, text string, o Options, got []int32, err error) (documents []string) {
	t.Helper()
	documents = naive(strings.TrimPrefix(text, "\ufeff"), o.Separator)
	var fault *data.Fault
	isFault := errors.As(err, &fault)
	switch want := bytesOf(documents...); {
	case !utf8.ValidString(text):
		if !isFault {
			t.Errorf("%q: got %v, want a fault", text, err)
		}
	case isFault && len(documents) == 0:
	case err != nil || !slices.Equal(got, want):
		t.Errorf("%q, separator %q, chunks of %d: got %v, %v, want %v", text, o.Separator, o.chunk, got, err, want)
	}
	return documents
}

// The shards of Tokenize must contain the tokens of naive. For a text without documents, there must be no shards.
func TestTokenizeEqualsNaive(t *testing.T) {
	for _, seed := range cutSeeds {
		dir := t.TempDir()
		o := cutOptions(write(t, dir, "a.txt", []byte(seed.text)), seed.chunk, seed.kind)
		o.Folder = filepath.Join(dir, "out")
		_, err := Tokenize(t.Context(), o)
		var got []int32
		if err == nil {
			got, _ = all(t, o.Folder)
		}
		if documents := checkCut(t, seed.text, o, got, err); len(documents) == 0 && err == nil {
			t.Errorf("%q: got no error, want a fault, because there are no documents", seed.text)
		}
	}
}

// FuzzCutter compares the tokens of a text, read in small chunks, with those of naive. It writes no shards.
func FuzzCutter(f *testing.F) {
	for _, s := range cutSeeds {
		f.Add([]byte(s.text), s.chunk, s.kind)
	}
	in := filepath.Join(f.TempDir(), "a.txt")
	e := tokenizer.Bytes().NewEncoder()
	f.Fuzz(func(t *testing.T, text []byte, chunk, kind uint8) {
		if err := os.WriteFile(in, text, 0o600); err != nil {
			t.Fatal(err)
		}
		o := cutOptions(in, chunk, kind)
		got, err := encoded(t.Context(), e, o)
		checkCut(t, string(text), o, got, err)
	})
}

// encoded returns the tokens of the inputs. Unlike Tokenize, it writes no shards. For small inputs, creating and
// flushing files would take most of the time.
func encoded(ctx context.Context, e tokenizer.Encoder, o Options) (all []int32, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	sources, err := o.FindSources(ctx)
	if err != nil {
		return nil, err
	}
	k := &cutter{ctx: ctx, o: &o, sources: sources.List, stored: new(atomic.Int64)}
	defer k.close()
	for {
		var c chunk
		if err := k.next(&c); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if c.encode(e, &o); c.err != nil {
			return nil, c.err
		}
		all = append(all, c.train...)
	}
}
