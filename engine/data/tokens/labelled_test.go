package tokens

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

func wordPiece(t testing.TB) *tokenizer.WordPiece {
	t.Helper()
	w, err := tokenizer.ParseWordPiece([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// labelled returns 96 texts of unequal lengths in three classes.
func labelled(t testing.TB) *Classification {
	t.Helper()
	var file strings.Builder
	file.WriteString("label\ttext\n")
	for i := range 96 {
		fmt.Fprintf(&file, "%d\t%s\n", i%3, strings.Repeat("a b ", i%11))
	}
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.tsv", []byte(file.String())),
		Tokenizer: wordPiece(t), Length: 16})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLabelledTexts(t *testing.T) {
	tsv := "id\tlabel\tquestion\tanswer\n1\tyes\ta b\tc\n\n2\tno\tA\ta b c d a b c d\r\n3\tyes\ta b c d a\tb c d b\n"
	jsonl := `{"question": "a b", "answer": "c", "label": "yes"}` + "\n" +
		`{"question": "A", "answer": "a b c d a b c d", "label": "no"}` + "\n\n" +
		`{"question": "a b c d a", "answer": "b c d b", "label": "yes"}`
	for name, file := range map[string]string{"a.tsv": tsv, "a.jsonl": jsonl, "mark.tsv": "\ufeff" + tsv,
		"mark.jsonl": "\ufeff" + jsonl} {
		c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, name, []byte(file)),
			Tokenizer: wordPiece(t), Length: 10, Text: "question", Second: "answer"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Classes(), []string{"no", "yes"}) || c.Truncated() != 2 {
			t.Errorf("%s: classes %q, %d truncated", name, c.Classes(), c.Truncated())
		}
		if _, eval := c.Split(1); eval.Truncated() != 2 {
			t.Errorf("%s: %d truncated texts for evaluation, want 2", name, eval.Truncated())
		}
		if train, _ := c.Split(1); train.Truncated() != 0 {
			t.Errorf("%s: %d truncated texts for training, want 0", name, train.Truncated())
		}
		want := []map[string][]int32{
			{Tokens: {2, 5, 6, 3, 7, 3, 0, 0, 0, 0}, Segments: {0, 0, 0, 0, 1, 1, 0, 0, 0, 0}, Lengths: {6},
				Labels: {1}},
			{Tokens: {2, 5, 3, 5, 6, 7, 8, 5, 6, 3}, Segments: {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, Lengths: {10},
				Labels: {0}},
			{Tokens: {2, 5, 6, 7, 8, 3, 6, 7, 8, 3}, Segments: {0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, Lengths: {10},
				Labels: {1}},
		}
		for i, s := range load(t, c, data.Options{BatchSize: 3, Evaluate: true}, 1) {
			if fmt.Sprint(s.values) != fmt.Sprint(want[i]) || c.Length(i) != int(want[i][Lengths][0]) ||
				c.Label(i) != int(want[i][Labels][0]) {
				t.Errorf("%s: sample %d: got %v, want %v", name, i, s.values, want[i])
			}
		}
	}
}

func TestLabelledTextsAreSplit(t *testing.T) {
	var lines strings.Builder
	lines.WriteString("text\tlabel\n")
	for i := range 1000 {
		fmt.Fprintf(&lines, "a\t%d\n", i%2)
	}
	path := filepath.Join(t.TempDir(), "many.tsv")
	must(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: path, Tokenizer: wordPiece(t), Length: 16})
	must(t, err)
	train, eval := c.Split(0.2)
	// The tolerance is five standard deviations of a binomial distribution.
	if train.Len()+eval.Len() != 1000 || math.Abs(float64(eval.Len())-200) > 5*math.Sqrt(1000*0.2*0.8) ||
		!slices.Equal(train.Classes(), eval.Classes()) {
		t.Errorf("%d and %d samples", train.Len(), eval.Len())
	}
	if train, eval := c.Split(0); train.Len() != 1000 || eval.Len() != 0 {
		t.Errorf("%d and %d samples, want all for training", train.Len(), eval.Len())
	}
	if again, _ := c.Split(0.2); again.Len() != train.Len() || again.Label(7) != train.Label(7) {
		t.Error("another split")
	}
}

func TestNumbersOfClassesAreInOrder(t *testing.T) {
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.jsonl", []byte(`{"text": "a", "label": 10}
{"text": "a", "label": 2}
{"text": "a", "label": -1}`)), Tokenizer: wordPiece(t), Length: 8})
	if err != nil || !slices.Equal(c.Classes(), []string{"-1", "2", "10"}) || c.Label(0) != 2 {
		t.Errorf("got %q, %v", c.Classes(), err)
	}
}

// If the classes have numbers as names, a label must be a name, and never an index of Classes. The order of the labels
// must not affect this.
func TestNumbersOfOtherClassesAreRefused(t *testing.T) {
	for _, c := range []struct {
		classes, labels []string
		want            []int // nil: the labels must be refused
	}{
		{[]string{"1", "2"}, []string{"1", "2"}, []int{0, 1}},
		{[]string{"1", "2"}, []string{"0", "1"}, nil},
		{[]string{"1", "2"}, []string{"1", "0"}, nil},
		{[]string{"1.5", "bad"}, []string{"0", "1"}, nil},
		{[]string{"no", "yes"}, []string{"1", "0"}, []int{1, 0}},
		{[]string{"no", "yes"}, []string{"no", "1"}, nil},
		{[]string{"no", "yes"}, []string{"1", "no"}, nil},
	} {
		file := "text\tlabel\na\t" + strings.Join(c.labels, "\na\t") + "\n"
		got, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.tsv", []byte(file)),
			Tokenizer: wordPiece(t), Length: 8, Classes: c.classes, Numbered: true})
		if c.want == nil {
			if err == nil {
				t.Errorf("classes %q, labels %q: got no error", c.classes, c.labels)
			}
			continue
		}
		if err != nil || int(got.Label(0)) != c.want[0] || int(got.Label(1)) != c.want[1] {
			t.Errorf("classes %q, labels %q: got %v, want %v", c.classes, c.labels, err, c.want)
		}
	}
}

// Python writes NaN into JSON. NaN in a field that is not read must not cause an error.
func TestFieldsThatAreNotReadMayHaveNaN(t *testing.T) {
	c, err := OpenClassification(t.Context(), ClassificationOptions{Path: writeFile(t, "a.jsonl", []byte(`{"text": "a NaN", "label": 10, "score": NaN}
{"text": "a", "label": 2, "scores": [-Infinity, 1e-3]}`)), Tokenizer: wordPiece(t), Length: 8})
	if err != nil || !slices.Equal(c.Classes(), []string{"2", "10"}) || c.Len() != 2 {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestLabelledTextsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, contents, want string }{
		"CSV": {
			"a.tsv", "text,label\na,1\n", `csv.DictReader(sys.stdin)]' < a.tsv > a.jsonl converts CSV to JSON lines`},
		"a hostile name": {"a b;'$(x)'.tsv", "text,label\na,1\n",
			`' < 'a b;'\''$(x)'\''.tsv' > 'a b;'\''$(x)'\''.jsonl' converts CSV`},
		"CSV, semicolons": {"a.tsv", "text;label\na;1\n", `delimiter=";"`},
		"CSV, other name": {"a.csv", "text,label\na,1\n", "not tab-separated values"},
		"quotes": {"a.tsv", "\"text\"\t\"label\"\n\"a\"\t\"1\"\n",
			`delimiter="\t")]' < a.tsv > a.jsonl converts`},
		"JSON lines": {"a.json", `{"text": "a", "label": "1"}` + "\n", "rename the file to a.jsonl"},
		"a JSON array": {"a.json", "[\n{\"text\": \"a\", \"label\": \"1\"}]\n",
			"json.load(sys.stdin)]' < a.json > a.jsonl"},
		"Parquet": {"a.parquet", "PAR1\x15\x04\xff\xfe\x00\n",
			"the file has Parquet, not tab-separated values"},
		"no column": {"a.tsv", "sentence\tlabel\na\t1\n",
			`line 1: there is no column "text"; the columns are ["sentence" "label"]`},
		"a name twice": {"a.tsv", "label\ttext\tlabel\n1\ta\t2\n",
			`line 1: two columns have the name "label", want one`},
		"too few columns":  {"a.tsv", "text\tlabel\na\t1\na\n", `line 3: got 1 columns, want 2`},
		"no label":         {"a.tsv", "text\tlabel\na\t \n", `line 2: "label" is empty`},
		"one class":        {"a.tsv", "text\tlabel\na\t1\n", `all labels are ["1"]`},
		"empty":            {"a.tsv", "", "no labelled texts"},
		"names only":       {"a.tsv", "text\tlabel\n", "no labelled texts"},
		"not UTF-8":        {"a.tsv", "text\tlabel\na\xff\t1\n", "line 2: byte 1 is not UTF-8: ff"},
		"no JSON":          {"a.jsonl", "text\n", "line 1: want a JSON object"},
		"no field":         {"a.jsonl", `{"text": "a"}`, `line 1: no value of "label"`},
		"a list":           {"a.jsonl", `{"text": ["a"], "label": 1}`, `"text" is a list, want one string or number`},
		"an object":        {"a.jsonl", `{"text": {"a": 1}, "label": 1}`, `"text" is an object, want a string`},
		"NaN":              {"a.jsonl", `{"text": "a", "label": NaN, "score": NaN}`, `line 1: no value of "label"`},
		"an unknown class": {"b.tsv", "text\tlabel\na\tmaybe\n", `line 2: got label "maybe", want one of ["no" "yes"]`},
		"a long line": {"a.tsv", "text\tlabel\n" + strings.Repeat("x", 16<<20) + "\t1\n",
			"line 2: more than 16 MiB"},
	} {
		o := ClassificationOptions{Path: writeFile(t, c.file, []byte(c.contents)), Tokenizer: wordPiece(t), Length: 8}
		if c.file == "b.tsv" {
			o.Classes = []string{"no", "yes"}
		}
		_, err := OpenClassification(t.Context(), o)
		var f *data.Fault
		if !errors.As(err, &f) || f.Path != o.Path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %q", name, err, c.want)
		}
	}
	if _, err := OpenClassification(t.Context(), ClassificationOptions{Path: filepath.Join(t.TempDir(), "none.tsv"),
		Tokenizer: wordPiece(t), Length: 8}); !errors.Is(err, os.ErrNotExist) &&
		(err == nil || !strings.Contains(err.Error(), "no such file")) {
		t.Errorf("got %v", err)
	}
}

func TestFit(t *testing.T) {
	for _, c := range [][5]int{{3, 2, 5, 3, 2}, {9, 2, 5, 3, 2}, {2, 9, 5, 2, 3}, {9, 9, 5, 3, 2}, {0, 9, 5, 0, 5},
		{5, 4, 8, 4, 4}, {5, 4, 7, 4, 3}} {
		if a, b := fit(c[0], c[1], c[2]); a != c[3] || b != c[4] {
			t.Errorf("%v: got %d, %d", c, a, b)
		}
	}
}

// FuzzClassification checks that a file is refused, or that each of its samples has a class and fits into the length.
func FuzzClassification(f *testing.F) {
	f.Add([]byte("text\tlabel\na b\t1\nc\t2\n"), false)
	f.Add([]byte("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": true}"), true)
	f.Fuzz(func(t *testing.T, file []byte, lines bool) {
		name := "a.tsv"
		if lines {
			name = "a.jsonl"
		}
		c, err := OpenClassification(t.Context(),
			ClassificationOptions{Path: writeFile(t, name, file), Tokenizer: wordPiece(t), Length: 6})
		if err != nil {
			var fault *data.Fault
			if !errors.As(err, &fault) {
				t.Fatal(err)
			}
			return
		}
		for i := range c.Len() {
			if c.Length(i) > 6 || c.Label(i) < 0 || c.Label(i) >= len(c.Classes()) {
				t.Fatalf("sample %d: length %d, class %d of %q", i, c.Length(i), c.Label(i), c.Classes())
			}
		}
	})
}

// Training divides the loss of masked tokens by the number of labels on all ranks. Every rank must count these labels
// in advance.
func TestLabelsOfPairsAreCountedInAdvance(t *testing.T) {
	m := masked(t, true)
	const batch = 10
	l, err := data.NewLoader(data.Options{Samples: m, BatchSize: batch, Seed: 3, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sum, positions := 0, 0
	for range 2 * l.BatchesPerEpoch() {
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, label := range data.Values[int32](b, Labels) {
			if label != NoLabel {
				n++
			}
		}
		if b.StepLabels != n {
			t.Fatalf("step %d: got %d labels, the batch has %d", b.Step, b.StepLabels, n)
		}
		sum, positions = sum+n, positions+batch*m.o.Length
		b.Release()
	}
	if got := float64(sum) / float64(positions); math.Abs(got-m.Counted()) > 0.1*got {
		t.Errorf("%v of the positions have labels, Counted returns %v", got, m.Counted())
	}
}
