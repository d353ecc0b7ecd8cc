package text

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

const end = int32(256) // end-of-text token of the byte tokenizer

func write(t testing.TB, dir, name string, contents []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// all returns the tokens of all shards of a folder.
func all(t testing.TB, folder string) (train, eval []int32) {
	t.Helper()
	f, err := tokens.Find(folder, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, paths := range [][]string{f.Train, f.Eval} {
		if paths == nil {
			continue
		}
		c, err := tokens.OpenOptions{}.OpenCorpus(paths)
		if err != nil {
			t.Fatal(err)
		}
		list := make([]int32, c.Len())
		err = c.Read(0, list)
		for _, s := range c.Shards {
			if _, bad := s.Verify(t.Context()); bad != nil {
				t.Error(bad)
			}
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			train = list
		} else {
			eval = list
		}
	}
	return train, eval
}

// bytesOf returns the tokens of the byte tokenizer for some documents.
func bytesOf(documents ...string) (list []int32) {
	for _, d := range documents {
		for _, b := range []byte(d) {
			list = append(list, int32(b))
		}
		list = append(list, end)
	}
	return list
}

func TestDocuments(t *testing.T) {
	none, blank, marker := []byte(nil), []byte{}, []byte("<|end|>")
	for name, c := range map[string]struct {
		file, text string
		separator  []byte
		want       []int32
		empty      int64
	}{
		"one document": {"a.txt", "one two\nthree\n\nfour", none, bytesOf("one two\nthree\n\nfour"), 0},
		"blank lines": {"a.txt", "\n\none two\nthree\n\n\r\n\nfour", blank, bytesOf("one two\nthree\n", "four"),
			0},
		"a marker": {"a.txt", "one\n<|end|>\ntwo <|end|>\n<|end|> \n<|end|>\r\n \n<|end|>\nthree\n<|end|>",
			marker, bytesOf("one\n", "two <|end|>\n<|end|> \n", "three\n"), 1},
		"JSON lines": {
			"a.jsonl", "{\"text\": \"one\\n\\u00e9\"}\n\n{\"id\": 1, \"text\": \" \"}\n{\"text\":\"two\"}", none,
			bytesOf("one\né", "two"), 1},
		"a replaced letter": {"a.jsonl", "{\"text\": \"\\uFFFD\ufffd\\ufffd\"}", none, bytesOf("\ufffd\ufffd\ufffd"),
			0},
		"a surrogate pair":   {"a.jsonl", `{"text": "\ud83d\ude00"}`, none, bytesOf("😀"), 0},
		"a byte order mark":  {"a.txt", "\ufeffone \ufefftwo", none, bytesOf("one \ufefftwo"), 0},
		"a mark and a blank": {"a.txt", "\ufeff\none two", blank, bytesOf("one two"), 0},
		"a mark and lines": {"a.jsonl", "\ufeff{\"text\": \"one\"}\n{\"text\": \"two\"}", none,
			bytesOf("one", "two"), 0},
		"characters of bytes": {"a.txt", strings.Repeat("日本語 ", 40), none, bytesOf(strings.Repeat("日本語 ", 40)), 0},
	} {
		for _, chunk := range []int{16, 100, 1 << 20} {
			for suffix, pack := range map[string]func(testing.TB, []byte) []byte{
				"": func(_ testing.TB, b []byte) []byte { return b }, ".gz": datatest.Gzip, ".zst": datatest.Zstd} {
				dir := t.TempDir()
				in := write(t, dir, c.file+suffix, pack(t, []byte(c.text)))
				out := filepath.Join(dir, "out")
				r, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes(),
					Separator: c.separator, Workers: 2, chunk: chunk})
				if err != nil {
					t.Errorf("%s%s, chunks of %d: %v", name, suffix, chunk, err)
					continue
				}
				got, _ := all(t, out)
				documents := int64(0)
				for _, token := range c.want {
					if token == end {
						documents++
					}
				}
				if !slices.Equal(got, c.want) || r.Documents != documents || r.Empty != c.empty ||
					Tokens(r.Train) != int64(len(c.want)) {
					t.Errorf("%s%s, chunks of %d: got %v, %d documents, %d empty, want %v, %d, %d", name, suffix, chunk,
						got, r.Documents, r.Empty, c.want, documents, c.empty)
				}
			}
		}
	}
}

// article returns a text whose documents have many different lengths, for tests that need many chunks.
func article(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Line %d of naïve  text,\tcan't you see?\n", i*i)
		if i%7 == 3 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestChunksDoNotChangeTokens(t *testing.T) {
	vocab := filepath.Join("..", "tokenizer", "testdata", "vocab.txt")
	for _, name := range tokenizer.Names {
		path := ""
		if strings.HasPrefix(name, "wordpiece") {
			path = vocab
		}
		k, err := tokenizer.New(name, path)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		in := write(t, dir, "a.txt", []byte(article(300)))
		want := append(k.NewEncoder().Append(nil, []byte(article(300))), k.EndOfText())
		for i, chunk := range []int{40, 1000} {
			out := filepath.Join(dir, fmt.Sprint(i))
			if _, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: k,
				VocabularyFile: path, ShardTokens: 777, chunk: chunk}); err != nil {
				t.Fatal(err)
			}
			if got, _ := all(t, out); !slices.Equal(got, want) {
				t.Errorf("%s, chunks of %d: %d tokens, want %d", name, chunk, len(got), len(want))
			}
			if path != "" && !bytes.Equal(read(t, filepath.Join(out, "vocab.txt")), read(t, vocab)) {
				t.Errorf("%s: another vocabulary", name)
			}
		}
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheEndOfAPlainTextIsForEvaluation(t *testing.T) {
	dir := t.TempDir()
	text := "0123456789 0123456789é"
	for i, suffix := range []string{"", ".gz"} {
		contents := []byte(text)
		if suffix != "" {
			contents = datatest.Gzip(t, contents)
		}
		in, out := write(t, dir, "a.txt"+suffix, contents), filepath.Join(dir, fmt.Sprint(i))
		if _, err := Tokenize(t.Context(), Options{Inputs: []string{in, in}, Folder: out, Tokenizer: tokenizer.Bytes(),
			EvalFraction: 0.25, chunk: 16}); err != nil {
			t.Fatal(err)
		}
		train, eval := all(t, out)
		// Each file has 23 bytes, so the evaluation part starts at int(17.25).
		if !slices.Equal(train, bytesOf(text[:17], text[:17])) || !slices.Equal(eval, bytesOf(text[17:], text[17:])) {
			t.Errorf("got %v and %v", train, eval)
		}
	}
	// The evaluation part must never begin in the middle of a character.
	in, out := write(t, dir, "b.txt", []byte("aéééé")), filepath.Join(dir, "b")
	if _, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes(),
		EvalFraction: 0.7}); err != nil {
		t.Fatal(err)
	}
	if train, eval := all(t, out); !slices.Equal(train, bytesOf("aé")) || !slices.Equal(eval, bytesOf("ééé")) {
		t.Errorf("got %v and %v", train, eval)
	}
}

// The expected numbers are those that nanoGPT's data/shakespeare/prepare.py prints, plus one end-of-text token for each
// part.
func TestShakespeareIsDividedAsByNanoGPT(t *testing.T) {
	path := needtest.Data(t, "tinyshakespeare.txt")
	out := filepath.Join(t.TempDir(), "out")
	r, err := Tokenize(t.Context(), Options{Inputs: []string{path}, Folder: out, Tokenizer: tokenizer.GPT2(),
		EvalFraction: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	if Tokens(r.Train) != 301_966+1 || Tokens(r.Eval) != 36_059+1 {
		t.Errorf("got %d and %d tokens, want 301967 and 36060", Tokens(r.Train), Tokens(r.Eval))
	}
}

func TestDocumentsAreDividedAtRandom(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"text\": \"%d\"}\n", i)
	}
	in, out := write(t, dir, "a.jsonl", []byte(lines.String())), filepath.Join(dir, "out")
	if _, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes(),
		EvalFraction: 0.1}); err != nil {
		t.Fatal(err)
	}
	count := func(list []int32) (n int) {
		for _, token := range list {
			if token == end {
				n++
			}
		}
		return n
	}
	train, eval := all(t, out)
	if n := count(eval); count(train)+n != 1000 || n < 70 || n > 130 {
		t.Errorf("%d documents for evaluation, %d for training", n, count(train))
	}
}

func TestAFolderStandsForItsTextFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []string{write(t, dir, "b.txt", []byte("b")), write(t, dir, "c.jsonl.gz", []byte("c")),
		write(t, filepath.Join(dir, "sub"), "a.txt", []byte("a"))}
	write(t, dir, "photo.jpg", []byte("x"))
	sources, err := (&Options{Inputs: []string{dir}}).FindSources(t.Context())
	var got []string
	for _, s := range sources.List {
		got = append(got, s.Path)
	}
	if err != nil || !slices.Equal(got, want) || sources.List[0].Lines || !sources.List[1].Lines ||
		len(sources.Skipped) != 1 {
		t.Errorf("got %+v, %v", sources, err)
	}
}
