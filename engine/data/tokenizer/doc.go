// Package tokenizer converts text to tokens and back.
//
//	Bytes      one token per byte; needs no vocabulary
//	GPT2       the byte-pair encoding of GPT-2, with an embedded vocabulary
//	WordPiece  BERT's tokenizer, with a vocabulary file
//
// A Tokenizer is immutable and safe for concurrent use. An Encoder contains buffers and a cache, so it is not safe for
// concurrent use:
//
//	t, err := tokenizer.New("gpt2", "")
//	e := t.NewEncoder()
//	tokens = e.Append(tokens, []byte("Hello world"))
//	text, err := t.Decode(nil, tokens)
//
// Text must be valid UTF-8. Text never becomes a special token: "<|endoftext|>" and "[SEP]" in a text are ordinary
// characters. The caller appends EndOfText after each document.
//
// Long texts can be encoded in parts. Cut returns a position at which splitting a text does not change its tokens.
//
// # GPT-2
//
// The vocabulary comes from github.com/tiktoken-go/tokenizer (r50k_base). This package itself splits text into words
// and merges pairs, for three reasons: the library uses a regular expression, allocates a string for each token, and
// drops the character DEL (U+007F). A test compares both implementations on arbitrary text.
//
// # WordPiece
//
// Text is normalised as in BERT's basic tokenizer (Hugging Face's library tokenizers). Control characters are removed.
// Each CJK ideograph and each punctuation character becomes a separate word. Unless the vocabulary is cased, letters
// become lower case, and accents are removed.
package tokenizer
