package parts

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// wordsOf returns the digest of a WordPiece vocabulary that [Trained] contains as Words.
func wordsOf(w *tokenizer.WordPiece) string {
	return tokenizer.IdentityOf(w.Name(), w.VocabularySum()).Sum
}

// compareEncodings returns an error if two tokenizers differ, or a warning if they may differ. The parameter was is the
// tokenizer of the tokens or weights in the file place. The parameter now is the tokenizer that key selects, a file or
// a setting. The text advice describes the remedy.
func compareEncodings(place string, was tokenizer.Identity, key string, now tokenizer.Identity, advice string) (
	warning string, err error) {
	switch was.Compare(now) {
	case tokenizer.Different:
		return "", exit.Usagef("%s: the tokens come from %s, but those of %s come from %s, so equal tokens mean different texts: %s",
			key, now, place, was, advice)
	case tokenizer.Unproved:
		if was.Known() || now.Known() {
			return fmt.Sprintf("nothing proves that the tokens of %s (%s) and of %s (%s) come from the same tokenizer",
				key, now, place, was), nil
		}
	}
	return "", nil
}
