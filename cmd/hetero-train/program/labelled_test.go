package program

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	datacmd "github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/data"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestLabelledTextsAreInspectedAndVerified(t *testing.T) {
	dir := t.TempDir()
	good := writeText(t, dir, "good.tsv",
		"label\tfirst\tsecond\nx\tit was\tthe\n\ny\tthe best of the times\t\nx\tit\tit\n")
	set := []string{"--set", "data.text_column=first", "--set", "data.second_column=second", "--set",
		"data.sequence_length=8", "--set", "data.vocab_file=" + wordVocabulary(t, dir)}
	for _, verb := range []string{"inspect", "verify"} {
		o := execute(append([]string{"data", verb, good, "--json"}, set...))
		var f datacmd.LabelledFile
		if err := json.Unmarshal([]byte(o.stdout), &f); o.code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v: %s%s", verb, o.code, err, o.stdout, o.stderr)
		}
		// The text "the best of the times" consists of 5 tokens, and the program adds 3 special tokens.
		if f.Samples != 3 || !maps.Equal(f.ByClass, map[string]int{"x": 2, "y": 1}) ||
			f.Characters != (datacmd.Spread{Min: 4, Median: 9, Max: 21}) || f.Tokens.Max != 8 || *f.Truncated != 0 ||
			f.Bad != 0 {
			t.Errorf("%s: got %+v with tokens %+v", verb, f, f.Tokens)
		}
	}
	short := append(set, "--set", "data.sequence_length=7")
	if o := execute(append([]string{"data", "inspect", good}, short...)); !strings.Contains(o.stdout,
		"1 samples have more than data.sequence_length = 7") {
		t.Errorf("got %s%s", o.stdout, o.stderr)
	}
	for _, c := range []struct {
		file, text string
		code       int
		want       string
	}{
		{"columns.tsv", "text\tlabel\na\tx\nb\n\xff\ty\nc\ty\n", exit.Data, "bad line 3: got 1 columns, want 2"},
		{"utf8.tsv", "text\tlabel\na\tx\n\xff\ty\nc\ty\n", exit.Data, "bad line 3: byte 0 is not UTF-8"},
		{"name.tsv", "review\tlabel\na\tx\n", exit.Data, `there is no column "text"`},
		{"one.tsv", "text\tlabel\na\tx\nb\tx\n", exit.Data, "want at least two classes"},
		{"empty.tsv", "", exit.Data, "0 samples of 0 classes"},
		{"a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": 1}\n[]\n", exit.Data,
			"bad line 3: want a JSON object"},
		{"good.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 2}\n", exit.Done,
			"2 labelled texts of 2 classes"},
	} {
		for _, verb := range []string{"inspect", "verify"} {
			if o := execute([]string{"data", verb, writeText(t, dir, c.file, c.text)}); o.code != c.code ||
				!strings.Contains(o.stdout+o.stderr, c.want) {
				t.Errorf("%s %s: exit %d, want %d and %q: %s%s", verb, c.file, o.code, c.code, c.want, o.stdout,
					o.stderr)
			}
		}
	}
	if o := execute([]string{"data", "verify", writeText(t, dir, "plain.txt", "text\tlabel\na\tx\nb\ty\n"), "--dataset",
		"labelled_text"}); o.code != 0 || !strings.Contains(o.stdout, "2 labelled texts") {
		t.Errorf("another name: exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}
