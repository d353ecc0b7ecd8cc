// Package tokenizer converts text to tokens and back.
//
//	Bytes      one token per byte; needs no vocabulary
//	GPT2       the byte-pair encoding of GPT-2, with an embedded vocabulary
//	WordPiece  BERT's tokenizer, with a vocabulary file
//
// A Tokenizer is immutable and serves any goroutine. An Encoder holds the buffers and the cache of one goroutine:
//
//	t, err := tokenizer.New("gpt2", "")
//	e := t.NewEncoder()
//	tokens = e.Append(tokens, []byte("Hello world"))
//	text, err := t.Decode(nil, tokens)
//
// Text is valid UTF-8. It never becomes a special token: "<|endoftext|>" and "[SEP]" in a text are ordinary
// characters. The caller appends EndOfText after each document.
//
// Long texts are encoded in parts. Cut returns a position at which a text may be divided without a change of its
// tokens.
//
// # GPT-2
//
// The vocabulary is that of github.com/tiktoken-go/tokenizer (r50k_base). The split into words and the merges are those
// of this package: the library uses a regular expression, allocates a string for each token, and drops DEL (U+007F). A
// test compares both on arbitrary text.
//
// # WordPiece
//
// Text is normalised as by BERT's basic tokenizer in Hugging Face's tokenizers: control characters are removed, CJK
// ideographs and punctuation become words of their own, and, unless the vocabulary is cased, letters become lower case
// and accents are removed.
package tokenizer
