package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokenizer converts text to tokens and back. It is safe for concurrent use.
type Tokenizer interface {
	// Name returns the name of the tokenizer, which New accepts. Token shards contain this name.
	Name() string
	// Vocabulary returns the number of tokens. Tokens are 0 to Vocabulary()-1.
	Vocabulary() int
	// EndOfText returns the token that ends a document.
	EndOfText() int32
	// VocabularySum returns the SHA-256 of the vocabulary file, or zeros if there is none.
	VocabularySum() [32]byte
	// NewEncoder returns an Encoder for one goroutine.
	NewEncoder() Encoder
	// Decode appends the text of tokens to dst. A character may need several tokens, so the text may be invalid UTF-8.
	Decode(dst []byte, tokens []int32) ([]byte, error)
}

// Encoder converts text to tokens. It is not safe for concurrent use.
type Encoder interface {
	// Append appends the tokens of text to dst. The text must be valid UTF-8.
	Append(dst []int32, text []byte) []int32
}

// Names lists the names that New accepts.
var Names = []string{"gpt2", "bytes", "wordpiece", "wordpiece-cased"}

// New returns the tokenizer with the given name. The parameter vocab is the path of the vocabulary file of wordpiece
// and wordpiece-cased. It must be empty for the other tokenizers. If the file is faulty, the error is a *data.Fault.
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
			return nil, fmt.Errorf("tokenizer %s needs a vocabulary file, for example the vocab.txt of a BERT model",
				name)
		}
		return OpenWordPiece(vocab, name == "wordpiece-cased")
	}
	return nil, fmt.Errorf("unknown tokenizer %q, want one of %s", name, strings.Join(Names, ", "))
}

// Cut returns the largest n > 0 at which splitting text does not change its tokens, or 0 if there is no such n. The
// tokens of text[:n] and text[n:] are then together those of text. This holds for every tokenizer of this package and
// for every continuation of text. Position n is the start of white space that follows a visible character.
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

// lastSpace returns the position of the last white space in text at which all tokenizers split words, or -1.
func lastSpace(text []byte) int {
	near := max(0, len(text)-64) // the common case: white space near the end, found without decoding
	if n := bytes.LastIndexAny(text[near:], " \n"); n >= 0 {
		return near + n
	}
	return bytes.LastIndexFunc(text, func(r rune) bool {
		// WordPiece removes these three characters as control characters.
		return unicode.IsSpace(r) && r != '\v' && r != '\f' && r != '\u0085'
	})
}

// beyond returns the error for a token that is not in the vocabulary.
func beyond(at int, token int32, vocabulary int) error {
	return fmt.Errorf("decode tokens: token %d is %d, want 0 to %d", at, token, vocabulary-1)
}
