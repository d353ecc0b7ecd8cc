package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

func TestUnreadableTextIsNamedWithItsPosition(t *testing.T) {
	line := `{"text": "x"}` + "\n"
	packed := datatest.Gzip(t, []byte(strings.Repeat("some text\n", 1000)))
	zpacked := datatest.Zstd(t, []byte(article(100)))
	for name, c := range map[string]struct {
		file     string
		contents []byte
		want     string
	}{
		"not UTF-8": {"a.txt", append([]byte(strings.Repeat("ok ", 30)), 0xFF, 'x'),
			"byte 90 of the text is not UTF-8: ff 78"},
		"half a character": {"a.txt", []byte("ok ok ok \xe6\x97"), "byte 9 of the text is not UTF-8: e6 97"},
		"UTF-16":           {"a.txt", []byte("\xff\xfea\x00"), "iconv -f UTF-16 -t UTF-8"},
		"empty":            {"a.txt", nil, "the file is empty"},
		"white space":      {"a.txt", []byte(" \n\n "), "white space only"},
		"a mark only":      {"a.txt", []byte("\ufeff"), "white space only"},
		"JSON after a mark": {"a.jsonl", []byte("\ufeff" + line + "text\n"),
			"line 2 (byte 17 of the text): want a JSON object"},
		"empty gzip": {"a.txt.gz", datatest.Gzip(t, nil), "white space only"},
		"a word of 16 MiB": {"a.txt", bytes.Repeat([]byte("x"), mostPartBytes+100),
			"no white space between words within 16777216 bytes"},
		"truncated gzip": {"a.txt.gz", packed[:len(packed)/2], "the file is truncated"},
		"no gzip":        {"a.txt.gz", []byte("ordinary text, ordinary text"), "gzip: invalid header"},
		"truncated zstd": {"a.txt.zst", zpacked[:len(zpacked)/2], "the file is truncated"},
		"no zstd":        {"a.txt.zst", []byte("ordinary text, ordinary text"), "magic number mismatch"},
		"no JSON": {"a.jsonl", []byte(line + line + "text\n"),
			"line 3 (byte 28 of the text): want a JSON object"},
		"a JSON array": {"a.jsonl", []byte("[]\n"), "line 1 (byte 0 of the text): want a JSON object"},
		"another field": {"a.jsonl", []byte(line + `{"body": "x", "id": 1}`),
			`line 2 (byte 14 of the text): no field "text"; the object has ["body" "id"]`},
		"a number":            {"a.jsonl", []byte(`{"text": 17}`), `field "text" is 17, want a string`},
		"null":                {"a.jsonl", []byte(`{"text": null}`), `field "text" is null, want a string`},
		"half a surrogate":    {"a.jsonl", []byte(`{"text": "\ud83d"}`), "half a surrogate pair"},
		"JSON, not UTF-8":     {"a.jsonl", []byte(line + "{\"text\": \"\xff\"}"), "byte 24 of the text is not UTF-8"},
		"JSON without an end": {"a.jsonl", []byte(`{"text": "x`), "line 1"},
	} {
		dir := t.TempDir()
		in := write(t, dir, c.file, c.contents)
		_, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: filepath.Join(dir, "out"),
			Tokenizer: tokenizer.Bytes(), chunk: 16})
		var f *data.Fault
		if !errors.As(err, &f) || f.Path != in || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	var f *data.Fault
	for _, in := range []string{filepath.Join(t.TempDir(), "none.txt"), t.TempDir()} {
		if _, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: filepath.Join(t.TempDir(), "out"),
			Tokenizer: tokenizer.Bytes()}); !errors.As(err, &f) {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

func TestOptionsWithoutEffectAreErrors(t *testing.T) {
	dir := t.TempDir()
	plain, lines := write(t, dir, "a.txt", []byte("text")), write(t, dir, "a.jsonl", []byte(`{"body": "text"}`))
	for _, c := range []struct {
		o    Options
		want string // "": no error
	}{
		{Options{Inputs: []string{plain}, Field: "body"},
			`field: got "body", but no input has JSON lines or a table; the first input is ` + plain},
		{Options{Inputs: []string{lines}, Field: "body", Lines: LinesNever}, "no input has JSON lines"},
		{Options{Inputs: []string{lines}, Field: "body", Separator: []byte("--")},
			`separator: got "--", but all inputs have JSON lines or tables; the first input is`},
		{Options{Inputs: []string{plain, lines}, Field: "body", Separator: []byte("--")}, ""},
	} {
		c.o.Folder, c.o.Tokenizer = filepath.Join(t.TempDir(), "out"), tokenizer.Bytes()
		_, err := Tokenize(t.Context(), c.o)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrUnused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestAFullDiskIsAnErrorOfTheOutput(t *testing.T) {
	dir := t.TempDir()
	in := write(t, dir, "a.txt", []byte("text"))
	o := Options{Inputs: []string{in}, Folder: filepath.Join(dir, "a.txt", "out"), Tokenizer: tokenizer.Bytes()}
	if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrWrite) {
		t.Errorf("got %v", err)
	}
}

// FuzzField checks that the text of a line is valid UTF-8, and equals the text that encoding/json finds.
func FuzzField(f *testing.F) {
	for _, s := range []string{`{"text": "a"}`, `{"text": "\ud800"}`, `{"text": 1}`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		text, err := field(line, "text")
		if err != nil || !utf8.Valid(line) {
			return
		}
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil || object["text"] != string(text) || !utf8.Valid(text) {
			t.Errorf("%q: got %q, want %v (%v)", line, text, object["text"], err)
		}
	})
}

// With SkipFaulty, faulty lines must be left out and counted. The size of the chunks must not affect the result.
func TestFaultyLinesCanBeLeftOut(t *testing.T) {
	good := `{"text": "ab"}` + "\n"
	for _, chunk := range []int{16, 1 << 20} {
		dir := t.TempDir()
		in := write(t, dir, "a.jsonl", []byte(good+"{broken\n"+good+`{"body": 1}`+"\n"+good))
		o := Options{Inputs: []string{in}, Folder: filepath.Join(dir, "out"), Tokenizer: tokenizer.Bytes(),
			SkipFaulty: true, chunk: chunk}
		r, err := Tokenize(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Documents != 3 || r.Faulty != 2 || Tokens(r.Train) != 9 || r.Fault == nil ||
			!strings.Contains(r.Fault.Error(), "line 2 (byte 15") {
			t.Errorf("got %d documents, %d faulty lines, %d tokens, %v", r.Documents, r.Faulty, Tokens(r.Train),
				r.Fault)
		}
		o.SkipFaulty = false
		if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrSettings) {
			t.Errorf("another setting: got %v", err)
		}
		o.Folder = filepath.Join(dir, "second")
		if _, err := Tokenize(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--bad-lines skip") {
			t.Errorf("got %v, want advice", err)
		}
		plain := Options{Inputs: []string{write(t, dir, "a.txt", []byte("x"))}, Folder: filepath.Join(dir, "third"),
			Tokenizer: tokenizer.Bytes(), SkipFaulty: true}
		if _, err := Tokenize(t.Context(), plain); !errors.Is(err, ErrUnused) {
			t.Errorf("plain text: got %v", err)
		}
	}
}
