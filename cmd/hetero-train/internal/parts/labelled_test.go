package parts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

// By default, the vocabulary determines whether texts keep capital letters. If a setting does not fit the vocabulary,
// the program must warn.
func TestTheVocabularyDecidesAboutCapitalLetters(t *testing.T) {
	dir := t.TempDir()
	for name, words := range map[string]string{"cased.txt": "The\nfilm\n", "uncased.txt": "the\nfilm\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"+words),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		vocab, set string
		cased      bool
		warning    string
	}{
		{"cased.txt", "", true, "data.cased is not set; the tokenizer keeps capital letters"},
		{"cased.txt", "true", true, ""},
		{"cased.txt", "false", false, "data.cased = false does not fit the vocabulary"},
		{"uncased.txt", "", false, ""},
		{"uncased.txt", "true", true, "data.cased = true does not fit the vocabulary"},
	} {
		overrides := []config.Override{{Key: "model.name", Value: "bert_base"},
			{Key: "data.dataset", Value: LabelledText}, {Key: "data.path", Value: "t.tsv"},
			{Key: "data.vocab_file", Value: filepath.Join(dir, c.vocab)}}
		if c.set != "" {
			overrides = append(overrides, config.Override{Origin: "--set", Key: "data.cased", Value: c.set})
		}
		cfg, err := config.Load("", BuiltinCatalog, overrides...)
		if err != nil {
			t.Fatal(err)
		}
		o, warning, _, err := LabelledOptions(cfg)
		if err != nil || o.Tokenizer.Cased() != c.cased || (warning == "") != (c.warning == "") ||
			!strings.Contains(warning, c.warning) {
			t.Errorf("%s, cased = %q: got cased %v, warning %q, %v; want %v, %q", c.vocab, c.set, o.Tokenizer.Cased(),
				warning, err, c.cased, c.warning)
		}
	}
}
