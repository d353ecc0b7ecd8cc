package text

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/data"
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

func zipped(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstded(t testing.TB, text []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(text, nil)
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

// bytesOf returns the tokens of documents that were encoded with the byte tokenizer.
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
				"": func(_ testing.TB, b []byte) []byte { return b }, ".gz": zipped, ".zst": zstded} {
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

// article returns a text of documents with many different lengths, for tests that need many chunks.
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
			contents = zipped(t, contents)
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
	// The start of the evaluation part must never split a character.
	in, out := write(t, dir, "b.txt", []byte("aéééé")), filepath.Join(dir, "b")
	if _, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes(),
		EvalFraction: 0.7}); err != nil {
		t.Fatal(err)
	}
	if train, eval := all(t, out); !slices.Equal(train, bytesOf("aé")) || !slices.Equal(eval, bytesOf("ééé")) {
		t.Errorf("got %v and %v", train, eval)
	}
}

// The test compares the results with the numbers that nanoGPT's data/shakespeare/prepare.py prints. In addition, each
// part ends with one end-of-text token.
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

// files returns the contents of a folder.
func files(t testing.TB, folder string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		m[e.Name()] = string(read(t, filepath.Join(folder, e.Name())))
	}
	return m
}

// resumable returns options with sources of all kinds. The result has many chunks, shards and journal entries.
func resumable(t testing.TB, dir string) Options {
	t.Helper()
	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "{\"text\": \"document %d\"}\n", i)
	}
	return Options{
		Inputs: []string{write(t, dir, "a.txt", []byte(article(200))),
			write(t, dir, "b.jsonl.zst", zstded(t, []byte(lines.String()))),
			write(t, dir, "c.txt.gz", zipped(t, []byte(article(300))))},
		Tokenizer: tokenizer.GPT2(), ShardTokens: 1500, EvalFraction: 0.2, Separator: []byte{}, chunk: 512,
		journal: 2048,
	}
}

func TestACancelledCallIsContinued(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "whole")
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := files(t, o.Folder)
	for calls := 1; calls < 60; calls += 7 {
		o.Folder = filepath.Join(dir, fmt.Sprint(calls))
		stops := 0
		for {
			ctx, stop := context.WithCancel(t.Context())
			n := 0
			o.Progress = func(done, total int64) {
				if n++; n == calls {
					stop()
				}
			}
			r, err := Tokenize(ctx, o)
			stop()
			if err == nil {
				if stops > 0 && !r.Resumed {
					t.Errorf("after %d stops: not resumed", stops)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if stops++; stops > 3 { // otherwise, no call reaches the next journal entry
				calls += 7
			}
		}
		if got := files(t, o.Folder); stops == 0 || !maps.Equal(got, want) {
			t.Errorf("stopped after %d chunks, %d times: got %v, want %v", calls, stops, slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
	}
}

// The test starts this test binary as a second process, which ends itself with SIGKILL.
func TestAKilledProcessIsContinued(t *testing.T) {
	dir := t.TempDir()
	if own := os.Getenv("TOKENIZE_AND_DIE"); own != "" {
		o := resumable(t, dir)
		o.Inputs = []string{filepath.Join(own, "a.txt"), filepath.Join(own, "b.jsonl.zst"),
			filepath.Join(own, "c.txt.gz")}
		o.Folder = filepath.Join(own, "killed")
		n := 0
		o.Progress = func(int64, int64) {
			if n++; n == 25 {
				self, err := os.FindProcess(os.Getpid())
				if err != nil {
					panic(err)
				}
				self.Kill()
			}
		}
		if _, err := Tokenize(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "whole")
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessIsContinued$")
		cmd.Env = append(os.Environ(), "TOKENIZE_AND_DIE="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || kills > 50 {
			t.Fatalf("%v after %d kills: %s", err, kills, out)
		}
		kills++
	}
	if got, want := files(t, filepath.Join(dir, "killed")), files(t, o.Folder); kills == 0 || !maps.Equal(got, want) {
		t.Errorf("killed %d times: got %v, want %v", kills, slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}

func TestACompleteFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "out")
	first, err := Tokenize(t.Context(), o)
	if err != nil || first.Already || first.Resumed {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := Tokenize(t.Context(), o)
	if err != nil || !second.Already || Tokens(second.Train) != Tokens(first.Train) {
		t.Errorf("got %+v, %v", second, err)
	}
	o.ShardTokens++
	if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrSettings) ||
		!strings.Contains(err.Error(), "shard_tokens was 1500, now 1501") {
		t.Errorf("got %v", err)
	}
	foreign := o
	foreign.Folder = t.TempDir()
	write(t, foreign.Folder, "train.bin", []byte{1, 0})
	if _, err := Tokenize(t.Context(), foreign); !errors.Is(err, ErrSettings) ||
		!strings.Contains(err.Error(), "train.bin, which another program or version wrote") {
		t.Errorf("got %v", err)
	}
}

func TestUnreadableTextIsNamedWithItsPosition(t *testing.T) {
	line := `{"text": "x"}` + "\n"
	packed := zipped(t, []byte(strings.Repeat("some text\n", 1000)))
	zpacked := zstded(t, []byte(article(100)))
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
		"empty gzip": {"a.txt.gz", zipped(t, nil), "white space only"},
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

func TestAChangedSourceIsNoticed(t *testing.T) {
	dir := t.TempDir()
	o := Options{Inputs: []string{write(t, dir, "a.txt", []byte(article(50)))}, Folder: filepath.Join(dir, "out"),
		Tokenizer: tokenizer.Bytes()}
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.txt", bytes.Replace([]byte(article(50)), []byte("Line 49"), []byte("Line 50"), 1))
	if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrSettings) {
		t.Errorf("got %v", err)
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

func TestDamagedManifestsAndJournals(t *testing.T) {
	for _, name := range []string{manifestName, journalName} {
		for _, contents := range []string{"", "{", `{"version": 2}`, "[]"} {
			dir := t.TempDir()
			in := write(t, dir, "a.txt", []byte("text"))
			out := t.TempDir()
			write(t, out, name, []byte(contents))
			_, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes()})
			var f *data.Fault
			if !errors.As(err, &f) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %q: got %v", name, contents, err)
			}
		}
	}
}

func TestAnImpossibleJournalIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "out")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	o.Progress = func(int64, int64) {
		if n++; n == 10 {
			stop()
		}
	}
	if _, err := Tokenize(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	path := filepath.Join(o.Folder, journalName)
	good := read(t, path)
	for from, to := range map[string]string{`"source": 0`: `"source": 4`, `"offset": `: `"offset": -`,
		`"tokens": `: `"tokens": -1`} {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("no %s in %s", from, good)
		}
		write(t, o.Folder, journalName, bytes.Replace(good, []byte(from), []byte(to), 1))
		var f *data.Fault
		if _, err := Tokenize(t.Context(), o); !errors.As(err, &f) ||
			!strings.Contains(err.Error(), "is not in the text") {
			t.Errorf("%s: got %v", to, err)
		}
	}
}

// FuzzField checks that the text of a line equals the result of encoding/json and is valid UTF-8.
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

// With SkipFaulty, faulty lines must be left out and counted. The result must not depend on the chunks.
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
