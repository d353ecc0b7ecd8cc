package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCaseOfAVocabulary(t *testing.T) {
	const specials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
	many := strings.Builder{}
	for i := range 500 {
		many.WriteString("word")
		many.WriteString(strings.Repeat("x", i))
		many.WriteString("\n")
	}
	for _, c := range []struct {
		name, words, config string
		known, cased        bool
		reason              string
	}{
		{"capitals", "The\nfilm\n##S\n", "", true, true,
			`2 of the 8 tokens of vocab.txt have capital letters, such as "The"`},
		{"small letters", "the\nfilm\n##s\n[unused1]\n", "", true, false, "no token of vocab.txt has capital letters"},
		{"a special token of one's own", "the\n<URL>\n[USER]\n", "", true, false, "no token"},
		{"few capitals", many.String() + "URL\n", "", false, false, "1 of the 506 tokens"},
		{"no letters with case", "一\n二\n1\n", "", false, false, "no token"},
		{"accents", "éa\nÉa\n", "", true, true, `such as "Éa"`},
		{"the settings say cased", "the\n", `{"do_lower_case": false}`, true, true, "do_lower_case = false"},
		{"the settings say uncased", "The\n", `{"do_lower_case": true, "x": [1]}`, true, false, "do_lower_case = true"},
		{"settings without the field", "The\n", `{"model_max_length": 512}`, true, true, "capital letters"},
		{"damaged settings", "The\n", `{"do_lower_case": `, true, true, "capital letters"},
	} {
		path := filepath.Join(t.TempDir(), "vocab.txt")
		if err := os.WriteFile(path, []byte(specials+c.words), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.config != "" {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "tokenizer_config.json"), []byte(c.config),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
		w, err := OpenWordPiece(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.CaseOf(path); got.Known != c.known || got.Cased != c.cased ||
			!strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: got %+v, want known %v, cased %v, %q", c.name, got, c.known, c.cased, c.reason)
		}
	}
}

func TestWithCase(t *testing.T) {
	w, err := ParseWordPiece([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\nthe\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	cased := w.WithCase(true)
	if got := cased.NewEncoder().Append(nil, []byte("The the")); len(got) != 2 || got[0] != 5 || got[1] != 6 ||
		!cased.Cased() || cased.Name() != "wordpiece-cased" {
		t.Errorf("got %v", got)
	}
	if got := w.NewEncoder().Append(nil, []byte("The the")); len(got) != 2 || got[0] != 6 || w.Cased() {
		t.Errorf("the original: got %v", got)
	}
}
