package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokenizer converts text to tokens. Any goroutine may call its methods.
type Tokenizer interface {
	// Name returns the name for New; shards of tokens store it.
	Name() string
	// Vocabulary returns the number of tokens: every token is below.
	Vocabulary() int
	// EndOfText returns the token that ends a document.
	EndOfText() int32
	// VocabularySum returns the SHA-256 of the vocabulary file; zeros if there is none.
	VocabularySum() [32]byte
	// NewEncoder returns an Encoder for one goroutine.
	NewEncoder() Encoder
	// Decode appends the text of tokens to dst. It may be invalid UTF-8, as a character may need several tokens.
	Decode(dst []byte, tokens []int32) ([]byte, error)
}

// Encoder converts text to tokens. Only one goroutine at a time may use it.
type Encoder interface {
	// Append appends the tokens of text, which is valid UTF-8, to dst.
	Append(dst []int32, text []byte) []int32
}

// Names lists the tokenizers that New knows.
var Names = []string{"gpt2", "bytes", "wordpiece", "wordpiece-cased"}

// New returns the tokenizer of that name. vocab is the path of the vocabulary file of wordpiece and wordpiece-cased; it
// must be empty for the others. Faults of the file are *data.Fault.
func New(name, vocab string) (Tokenizer, error) {
	switch name {
	case "gpt2", "bytes":
		if vocab != "" {
			return nil, fmt.Errorf("tokenizer %s uses no vocabulary file, got %q", name, vocab)
		}
		if name == "bytes" {
			return Bytes(), nil
		}
		return GPT2(), nil
	case "wordpiece", "wordpiece-cased":
		if vocab == "" {
			return nil, fmt.Errorf("tokenizer %s needs a vocabulary file, for example the vocab.txt of a BERT model", name)
		}
		return OpenWordPiece(vocab, name == "wordpiece-cased")
	}
	return nil, fmt.Errorf("unknown tokenizer %q, want one of %s", name, strings.Join(Names, ", "))
}

// Cut returns the largest n > 0 for which the tokens of text[:n] and text[n:] are those of text, or 0 if there is none.
// It holds for every tokenizer of this package, and for every continuation of text: position n is the start of white
// space that follows a visible character.
func Cut(text []byte) int {
	for n := len(text); n > 0; {
		n = lastSpace(text[:n])
		if n <= 0 {
			return 0
		}
		if r, _ := utf8.DecodeLastRune(text[:n]); !unicode.IsSpace(r) {
			return n
		}
	}
	return 0
}

// lastSpace returns the position of the last white space in text that separates words for every tokenizer, or -1.
func lastSpace(text []byte) int {
	near := max(0, len(text)-64) // the common case needs no decoding
	if n := bytes.LastIndexAny(text[near:], " \n"); n >= 0 {
		return near + n
	}
	return bytes.LastIndexFunc(text, func(r rune) bool {
		// WordPiece removes these three as control characters.
		return unicode.IsSpace(r) && r != '\v' && r != '\f' && r != '\u0085'
	})
}

// beyond reports a token that is not in the vocabulary.
func beyond(at int, token int32, vocabulary int) error {
	return fmt.Errorf("decode tokens: token %d is %d, want 0 to %d", at, token, vocabulary-1)
}
