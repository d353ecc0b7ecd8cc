package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// configName is the file next to a vocabulary in which Hugging Face's libraries store the settings of the tokenizer.
const (
	configName      = "tokenizer_config.json"
	mostConfigBytes = 16 << 20
)

// leastCapitals is the minimum fraction of tokens with capital letters in the vocabulary of a cased model. A cased BERT
// has about 40 %. Vocabularies of lower-case text have none, except for a few tokens that users added.
const leastCapitals = 0.01

// Case describes whether a model distinguishes capital letters.
type Case struct {
	Known  bool
	Cased  bool
	Reason string // evidence, for messages: "vocab.txt has 28996 tokens, of which 12000 have capital letters"
	// Capitals is the number of tokens with capital letters. A tokenizer that converts text to lower case never uses
	// these tokens.
	Capitals int
}

// CaseOf determines whether a vocabulary belongs to a cased model. It uses do_lower_case in tokenizer_config.json next
// to the vocabulary file, or, without this setting, the tokens.
func (w *WordPiece) CaseOf(vocabularyFile string) Case {
	capitals, small, example := 0, 0, ""
	for _, word := range w.words {
		word = strings.TrimPrefix(word, pieceMark)
		if strings.ContainsAny(word, "[<") { // special tokens: [CLS], <S>
			continue
		}
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.ToLower(r) != r }) {
			if capitals++; len(word) > len(example) && len(word) <= 20 {
				example = word
			}
		} else if strings.ContainsFunc(word, unicode.IsLower) {
			small++
		}
	}
	c := Case{Capitals: capitals, Cased: float64(capitals) >= leastCapitals*float64(len(w.words))}
	c.Cased = c.Cased && capitals > 0
	c.Known = c.Cased || capitals == 0 && small > 0
	name := filepath.Base(vocabularyFile)
	c.Reason = fmt.Sprintf("no token of %s has capital letters", name)
	if capitals > 0 {
		c.Reason = fmt.Sprintf("%d of the %d tokens of %s have capital letters, such as %q", capitals, len(w.words),
			name, example)
	}
	var settings struct {
		Lower *bool `json:"do_lower_case"`
	}
	file := filepath.Join(filepath.Dir(vocabularyFile), configName)
	text, err := regular.Read(file, mostConfigBytes)
	if err == nil && json.Unmarshal(text, &settings) == nil && settings.Lower != nil {
		c.Known, c.Cased = true, !*settings.Lower
		c.Reason = fmt.Sprintf("%s next to %s has do_lower_case = %v", configName, name, *settings.Lower)
	}
	return c
}

// WithCase returns a tokenizer with the same vocabulary. If cased is true, the tokenizer keeps capital letters and
// accents.
func (w *WordPiece) WithCase(cased bool) *WordPiece {
	other := *w
	other.cased = cased
	return &other
}

// Cased reports whether the tokenizer keeps capital letters and accents.
func (w *WordPiece) Cased() bool { return w.cased }
