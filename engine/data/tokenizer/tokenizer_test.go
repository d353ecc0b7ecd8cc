package tokenizer

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/hetero-train/hetero-train/engine/data"
)

var ranks = flag.String("ranks", "", "file to write the vocabulary of GPT-2 to, for testdata/goldens.py")

// The SHA-256 of the embedded vocabulary must be that of the file that tiktoken downloads.
func TestTheEmbeddedVocabularyIsThatOfGPT2(t *testing.T) {
	var file strings.Builder
	for i, text := range GPT2().(*gpt2).bytes {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(text)), i)
	}
	const want = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(file.String()))); got != want {
		t.Errorf("got SHA-256 %s, want %s", got, want)
	}
	if *ranks != "" {
		if err := os.WriteFile(*ranks, []byte(file.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// golden is a row of a file in testdata. goldens.py wrote these files.
type golden struct {
	Text   string  `json:"text"`
	Tokens []int32 `json:"tokens"`
	Cased  []int32 `json:"cased"`
}

func goldens(t *testing.T, name string) []golden {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows []golden
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) < 200 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows
}

func TestGPT2EqualsTiktoken(t *testing.T) {
	e := GPT2().NewEncoder()
	for _, row := range goldens(t, "gpt2.json") {
		got := e.Append(nil, []byte(row.Text))
		if !slices.Equal(got, row.Tokens) {
			t.Errorf("%q: got %v, want %v", row.Text, got, row.Tokens)
		}
		if text, err := GPT2().Decode(nil, got); err != nil || string(text) != row.Text {
			t.Errorf("%q: decoded %q, %v", row.Text, text, err)
		}
	}
}

// Version 0.10.0 of the library that contains the vocabulary drops DEL. tiktoken returns token 221.
func TestDELIsAToken(t *testing.T) {
	if got := GPT2().NewEncoder().Append(nil, []byte("\x7f")); !slices.Equal(got, []int32{221}) {
		t.Errorf("got %v, want [221]", got)
	}
}

func TestWordPieceEqualsTokenizers(t *testing.T) {
	for _, cased := range []bool{false, true} {
		w, err := OpenWordPiece(filepath.Join("testdata", "vocab.txt"), cased)
		if err != nil {
			t.Fatal(err)
		}
		e := w.NewEncoder()
		for _, row := range goldens(t, "wordpiece.json") {
			want := row.Tokens
			if cased {
				want = row.Cased
			}
			if got := e.Append(nil, []byte(row.Text)); !slices.Equal(got, want) {
				t.Errorf("cased %v: %q: got %v, want %v", cased, row.Text, got, want)
			}
		}
	}
}

func all(t testing.TB) []Tokenizer {
	t.Helper()
	var list []Tokenizer
	for _, name := range Names {
		vocab := ""
		if strings.HasPrefix(name, "wordpiece") {
			vocab = filepath.Join("testdata", "vocab.txt")
		}
		k, err := New(name, vocab)
		if err != nil || k.Name() != name {
			t.Fatal(name, err)
		}
		list = append(list, k)
	}
	return list
}

// FuzzGPT2EqualsItsLibrary compares words and merges with those of the library from which the vocabulary comes.
func FuzzGPT2EqualsItsLibrary(f *testing.F) {
	for _, s := range []string{"", "I'm  here\n\n", "naïve 你好 123", "a\u00a0\u3000b", strings.Repeat("xyz", 50)} {
		f.Add(s)
	}
	library := codec.NewR50kBase()
	e := GPT2().NewEncoder()
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || strings.ContainsRune(s, '\x7f') { // the library drops DEL, tiktoken does not
			return
		}
		ids, _, err := library.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int32, len(ids))
		for i, id := range ids {
			want[i] = int32(id)
		}
		if got := e.Append(nil, []byte(s)); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	})
}

// FuzzCut cuts a text into two parts. The tokens of both parts together must be the tokens of the text.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"", " a", "a b", "a  \nb c", "a\u3000 b", "a\u0085b", "é é", "a\vb c\fd", "x\ty\rz"} {
		f.Add(s)
	}
	tokenizers := all(f)
	f.Fuzz(func(t *testing.T, s string) {
		n := Cut([]byte(s))
		if n < 0 || n > len(s) {
			t.Fatalf("%q: cut at %d", s, n)
		}
		if !utf8.ValidString(s) || n == 0 {
			return
		}
		for _, k := range tokenizers {
			e := k.NewEncoder()
			whole, parts := e.Append(nil, []byte(s)), e.Append(e.Append(nil, []byte(s[:n])), []byte(s[n:]))
			if !slices.Equal(whole, parts) {
				t.Errorf("%s: %q cut at %d: got %v, want %v", k.Name(), s, n, parts, whole)
			}
		}
	})
}

func TestCutFindsASpace(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 0, "ab cd": 2, "ab cd ": 5, "ab  cd": 2, "  ab": 0, "你\u3000好": 3,
		"a\u0085b": 0, "a b\vc": 1, "a" + strings.Repeat("x", 100) + " " + strings.Repeat("y", 100): 101} {
		if got := Cut([]byte(s)); got != want {
			t.Errorf("%q: got %d, want %d", s, got, want)
		}
	}
}

func TestBytesAndTheirText(t *testing.T) {
	b := Bytes()
	tokens := b.NewEncoder().Append([]int32{7}, []byte("aé"))
	if want := []int32{7, 'a', 0xC3, 0xA9}; !slices.Equal(tokens, want) {
		t.Errorf("got %v, want %v", tokens, want)
	}
	if text, err := b.Decode(nil, append(tokens[1:], b.EndOfText())); err != nil || string(text) != "aé<|endoftext|>" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestDecodingForeignTokensIsAnError(t *testing.T) {
	for _, k := range all(t) {
		for _, token := range []int32{-1, int32(k.Vocabulary())} {
			if _, err := k.Decode(nil, []int32{0, token}); err == nil ||
				!strings.Contains(err.Error(), fmt.Sprintf("token 1 is %d", token)) {
				t.Errorf("%s: got %v", k.Name(), err)
			}
		}
		if k.EndOfText() < 0 || int(k.EndOfText()) >= k.Vocabulary() {
			t.Errorf("%s: end of text %d", k.Name(), k.EndOfText())
		}
	}
}

func TestWordPieceText(t *testing.T) {
	w, err := OpenWordPiece(filepath.Join("testdata", "vocab.txt"), false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := w.Decode(nil, w.NewEncoder().Append(nil, []byte("Hello, the supered")))
	if err != nil || string(text) != "hello , the supered" {
		t.Errorf("got %q, %v", text, err)
	}
}

const specials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

func TestVocabulariesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"empty":       {"", "the file is empty"},
		"duplicates":  {specials + "a\n##a\nb\na\n", `lines 6 and 9 are both "a"`},
		"duplicates#": {specials + "##a\nb\n##a\n", `lines 6 and 8 are both "##a"`},
		"empty line":  {specials + "a\n\nb\n", "line 7 is empty"},
		"no [MASK]":   {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", "4 tokens without [MASK]"},
		"not UTF-8":   {specials + "\xff\n", "line 6 is not UTF-8"},
	} {
		path := filepath.Join(t.TempDir(), "vocab.txt")
		if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := New("wordpiece", path)
		var f *data.Fault
		if !errors.As(err, &f) || f.Path != path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, err := ParseWordPiece([]byte("\ufeff"+strings.ReplaceAll(specials, "\n", "\r\n")), false); err != nil {
		t.Errorf("byte order mark and line ends of Windows: %v", err)
	}
	var f *data.Fault
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := New("wordpiece", path); !errors.As(err, &f) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestNewRefusesUnsuitableOptions(t *testing.T) {
	for _, c := range [][3]string{{"gpt3", "", "want one of gpt2, bytes"},
		{"gpt2", "vocab.txt", "uses no vocabulary file"}, {"wordpiece", "", "needs a vocabulary file"}} {
		if _, err := New(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%q: got %v", c[:2], err)
		}
	}
}

// FuzzParseWordPiece checks that a vocabulary is refused, or has tokens for any text.
func FuzzParseWordPiece(f *testing.F) {
	f.Add([]byte(specials+"a\n##b\n"), "ab a b")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		w, err := ParseWordPiece(file, false)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		tokens := w.NewEncoder().Append(nil, []byte(text))
		if _, err := w.Decode(nil, tokens); err != nil {
			t.Error(err)
		}
	})
}

// After its first use, an encoder must not allocate memory.
func TestEncodingAllocatesNothing(t *testing.T) {
	text := []byte(strings.Repeat("Hello worldly naive folks, can't supercalify! 12345 naïve 你好\n", 10))
	for _, k := range all(t) {
		e := k.NewEncoder()
		tokens := e.Append(nil, text)
		if n := testing.AllocsPerRun(10, func() { tokens = e.Append(tokens[:0], text) }); n != 0 {
			t.Errorf("%s: %v allocations", k.Name(), n)
		}
	}
}

// ownText returns the text of the file that HETERO_TEXT names.
func ownText(b *testing.B) []byte {
	b.Helper()
	path := os.Getenv("HETERO_TEXT")
	if path == "" {
		b.Skip("HETERO_TEXT names no text file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func BenchmarkEncode(b *testing.B) {
	text := ownText(b)
	for _, k := range all(b) {
		b.Run(k.Name(), func(b *testing.B) {
			e := k.NewEncoder()
			var tokens []int32
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tokens = e.Append(tokens[:0], text)
			}
			b.ReportMetric(float64(len(tokens))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
		})
	}
}

func BenchmarkLibrary(b *testing.B) {
	text := ownText(b)
	library, s := codec.NewR50kBase(), string(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, _, err := library.Encode(s); err != nil {
			b.Fatal(err)
		}
	}
}
