package text

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// plant writes files that contain their names. For a name of the form LINK->TARGET, it creates a link.
func plant(t *testing.T, names ...string) string {
	t.Helper()
	for i, name := range names {
		if !strings.Contains(name, "->") {
			names[i] += ":" + name
		}
	}
	return datatest.Plant(t, names...)
}

func TestTheNamesOfInputsStateTheirParts(t *testing.T) {
	for _, c := range []struct {
		name, files string
		inputs      string // paths relative to the folder; "": the folder itself
		ignore      bool
		train, eval string // names of files, joined by spaces; a text in train that begins with ! is an error
		unused      string
	}{
		{"no parts", "a.txt b.txt", "", false, "a.txt b.txt", "", ""},
		{"WikiText", "wiki.train.txt wiki.valid.txt wiki.test.txt", "", false, "wiki.train.txt", "wiki.valid.txt",
			"wiki.test.txt"},
		{"folders", "train/test-1.txt train/2.txt dev/1.txt", "", false, "train/2.txt train/test-1.txt", "dev/1.txt",
			""},
		{"without validation, test evaluates", "x/Training.txt x/Testing.txt", "", false, "x/Training.txt",
			"x/Testing.txt", ""},
		{"arguments", "train.txt valid.txt other.txt", "train.txt valid.txt", false, "train.txt", "valid.txt", ""},
		{"one argument", "test.txt", "test.txt", false, "test.txt", "", ""},
		{"one part", "test-0.txt test-1.txt", "", false, "test-0.txt test-1.txt", "", ""},
		{"the rest trains", "a.txt b.txt test.txt", "", false, "a.txt b.txt", "test.txt", ""},
		{"names off", "train.txt valid.txt test.txt the_test-train.txt", "", true,
			"test.txt the_test-train.txt train.txt valid.txt", "", ""},
		{"a file without a part", "train.txt valid.txt README.txt", "", false, `!"README.txt" names no part`, "", ""},
		{"two parts in a name", "train.txt train-test.txt", "", false, `!"train-test.txt" has words of two parts`, "",
			""},
		{"no training part", "valid.txt test.txt", "", false, "!no file names the training part", "", ""},
		{"files of tools", "a.txt .ipynb_checkpoints/a.txt lost+found/b.txt .hidden.txt", "", false, "a.txt", "", ""},
	} {
		dir := plant(t, strings.Fields(c.files)...)
		o := Options{Folder: filepath.Join(t.TempDir(), "out"), Tokenizer: tokenizer.Bytes(), IgnoreNames: c.ignore,
			Inputs: []string{dir}}
		if c.inputs != "" {
			o.Inputs = nil
			for _, name := range strings.Fields(c.inputs) {
				o.Inputs = append(o.Inputs, filepath.Join(dir, name))
			}
		}
		r, err := Tokenize(t.Context(), o)
		if wrong, fails := strings.CutPrefix(c.train, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: got %v, want %q", c.name, err, wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		train, eval := all(t, o.Folder)
		if want := bytesOf(strings.Fields(c.train)...); !slices.Equal(namesOf(train), namesOf(want)) {
			t.Errorf("%s: train: got %q, want %q", c.name, namesOf(train), c.train)
		}
		if !slices.Equal(namesOf(eval), namesOf(bytesOf(strings.Fields(c.eval)...))) ||
			(r.Sources.EvalFrom == "") != (c.eval == "") {
			t.Errorf("%s: eval: got %q from %q, want %q", c.name, namesOf(eval), r.Sources.EvalFrom, c.eval)
		}
		if got := strings.ReplaceAll(strings.Join(r.Sources.Unused, " "), dir+"/", ""); got != c.unused {
			t.Errorf("%s: unused: got %q, want %q", c.name, got, c.unused)
		}
	}
}

// namesOf returns the base names in documents that the byte tokenizer has encoded.
func namesOf(tokens []int32) (names []string) {
	var text []byte
	for _, token := range tokens {
		if token == end {
			names, text = append(names, filepath.Base(string(text))), nil
		} else {
			text = append(text, byte(token))
		}
	}
	return names
}

func TestAFractionForEvaluationNextToAnEvaluationPartIsRefused(t *testing.T) {
	dir := plant(t, "train.txt", "valid.txt")
	_, err := Tokenize(t.Context(), Options{Folder: filepath.Join(dir, "out"), Tokenizer: tokenizer.Bytes(),
		Inputs: []string{dir}, EvalFraction: 0.1})
	if !errors.Is(err, ErrUnused) || !strings.Contains(err.Error(), "part validation, valid.txt") {
		t.Errorf("got %v", err)
	}
}

// In all formats, a document must be in the same part as its file.
func TestPartsOfFormats(t *testing.T) {
	dir := plant(t, "train.jsonl", "val.jsonl")
	for name, text := range map[string]string{"train.jsonl": "{\"text\": \"a\"}\n{\"text\": \"b\"}\n",
		"val.jsonl": "{\"text\": \"c\"}\n"} {
		write(t, dir, name, []byte(text))
	}
	write(t, dir, "train-2.txt", []byte("d\n\ne\n"))
	write(t, dir, "dev-2.txt", []byte("f\n\ng\n"))
	o := Options{Folder: filepath.Join(t.TempDir(), "out"), Tokenizer: tokenizer.Bytes(), Inputs: []string{dir},
		Separator: []byte{}}
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	train, eval := all(t, o.Folder)
	if want := bytesOf("d\n", "e\n", "a", "b"); !slices.Equal(train, want) {
		t.Errorf("train: got %q, want %q", namesOf(train), namesOf(want))
	}
	if want := bytesOf("f\n", "g\n", "c"); !slices.Equal(eval, want) {
		t.Errorf("eval: got %q, want %q", namesOf(eval), namesOf(want))
	}
}

func TestLinkedTextFilesAreRead(t *testing.T) {
	dir := plant(t, "blobs/a", "in/b.txt", "in/a.txt->../blobs/a", "in/more->../other", "other/c.txt")
	o := Options{Inputs: []string{filepath.Join(dir, "in")}, FollowLinks: true}
	s, err := o.FindSources(t.Context())
	var got []string
	for _, source := range s.List {
		got = append(got, strings.TrimPrefix(source.Path, dir+"/in/"))
	}
	if want := []string{"a.txt", "b.txt", "more/c.txt"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	o.FollowLinks = false
	if _, err := o.FindSources(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `the link "a.txt" leads out of the folder`) {
		t.Errorf("got %v", err)
	}
	for _, c := range []struct {
		link, want string
	}{{"in/loop->..", "which contains it"}, {"in/none.txt->nothing", "is broken"}} {
		dir := plant(t, "in/b.txt", c.link)
		o := Options{Inputs: []string{filepath.Join(dir, "in")}, FollowLinks: true}
		if c.link == "in/loop->.." {
			o.Inputs = []string{dir}
		}
		if _, err := o.FindSources(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.link, err, c.want)
		}
	}
}

func TestUnknownTokensAreCounted(t *testing.T) {
	words, err := tokenizer.ParseWordPiece([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "t.txt", []byte(strings.Repeat("a b c d\n", 200)))
	o := Options{Inputs: []string{filepath.Join(dir, "t.txt")}, Folder: filepath.Join(dir, "out"), Tokenizer: words,
		Separator: []byte{}, chunk: 64}
	r, err := Tokenize(t.Context(), o)
	if err != nil || r.Unknown != 400 || Tokens(r.Train) != 801 {
		t.Errorf("got %d of %d tokens, %v, want 400 of 801", r.Unknown, Tokens(r.Train), err)
	}
}

// A file that seems to be a table or a binary file must not be tokenized as plain text.
func TestOtherFormatsAreNoPlainText(t *testing.T) {
	for name, c := range map[string]struct{ file, contents, want string }{
		"a JSON array": {"a.json", `[{"text": "x"}]`,
			"json.load(sys.stdin)]' < a.json > a.jsonl converts a JSON array to JSON lines"},
		"JSON lines":         {"a.json", `{"text": "x"}` + "\n", "rename the file to a.jsonl, the name of JSON lines"},
		"CSV":                {"a.csv", "text,label\nx,1\n", "csv.DictReader(sys.stdin)]' < a.csv > a.jsonl"},
		"TSV":                {"a.tsv", "text\tlabel\n", "the name ends in .tsv"},
		"compressed JSON":    {"a.json.gz", "\x1f\x8b", "the name ends in .json"},
		"PDF":                {"a.txt", "%PDF-1.7\n", "the file has the format PDF"},
		"a zip archive":      {"a.docx", "PK\x03\x04", "the file has the format zip"},
		"text":               {"a.txt", "x", ""},
		"another ending":     {"a.md", "# x", ""},
		"text with brackets": {"a.txt", "[x] y", ""},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, []byte(c.contents), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := identify(path, LinesBySuffix, "text")
		if got := err != nil && strings.Contains(err.Error(), c.want) &&
			strings.Contains(err.Error(), "--format text"); got != (c.want != "") || err != nil && c.want == "" {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if _, err := identify(path, LinesNever, ""); err != nil {
			t.Errorf("%s, as text: %v", name, err)
		}
	}
}

// Arrow and Parquet files must give the same tokens as JSON lines.
func TestTablesAreReadAsTheirRows(t *testing.T) {
	const folder = "../huggingface/testdata/"
	f, err := table.Open(folder + "texts_disk/data-00000-of-00001.arrow")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := io.ReadAll(f.Lines(t.Context(), []string{"text"}))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "train.jsonl", lines)
	tokensOf := func(input string) (train, eval []int32) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out")
		o := Options{Inputs: []string{input}, Folder: out, Tokenizer: tokenizer.Bytes(), chunk: 100}
		if _, err := Tokenize(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return all(t, out)
	}
	want, _ := tokensOf(filepath.Join(dir, "train.jsonl"))
	for _, name := range []string{"texts_disk", "texts_disk/data-00000-of-00001.arrow", "texts_parquet/train.parquet",
		"texts_parquet"} {
		train, eval := tokensOf(folder + name)
		if !slices.Equal(train, want) || (len(eval) > 0) != (name == "texts_parquet") {
			t.Errorf("%s: %d and %d tokens, want %d", name, len(train), len(eval), len(want))
		}
	}
	for field, want := range map[string]string{"missing": `there is no column "missing"; the columns are ["text" "label"]`,
		"label": `column "label" has integer, want text`} {
		o := Options{Inputs: []string{folder + "texts_disk"}, Folder: filepath.Join(dir, field), Field: field,
			Tokenizer: tokenizer.Bytes()}
		if _, err := Tokenize(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("field %s: got %v, want %q", field, err, want)
		}
	}
}

// data tokenize has no flags for the configuration keys that select splits. Its errors must therefore not recommend
// these keys.
func TestAConversionNamesNoKeysThatItLacks(t *testing.T) {
	dir := t.TempDir()
	for _, language := range []string{"de", "en"} {
		if err := os.Mkdir(filepath.Join(dir, language), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, dir, language+"/train.parquet", []byte("PAR1"))
	}
	_, err := Tokenize(t.Context(), Options{Inputs: []string{dir}, Folder: filepath.Join(t.TempDir(), "out"),
		Tokenizer: tokenizer.Bytes()})
	if err == nil || !strings.Contains(err.Error(), "different configurations") || strings.Contains(err.Error(), "data.") {
		t.Errorf("got %v, want an error about configurations without keys", err)
	}
}
