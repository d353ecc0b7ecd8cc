package tokenizer

// Bytes returns the tokenizer with one token per byte: tokens 0 to 255 are the byte values. Token 256 ends a
// document.
func Bytes() Tokenizer { return byteTokenizer{} }

type byteTokenizer struct{}

const bytesEndOfText = 256

func (byteTokenizer) Name() string            { return "bytes" }
func (byteTokenizer) Vocabulary() int         { return bytesEndOfText + 1 }
func (byteTokenizer) EndOfText() int32        { return bytesEndOfText }
func (byteTokenizer) VocabularySum() [32]byte { return [32]byte{} }
func (byteTokenizer) NewEncoder() Encoder     { return byteTokenizer{} }

func (byteTokenizer) Append(dst []int32, text []byte) []int32 {
	for _, b := range text {
		dst = append(dst, int32(b))
	}
	return dst
}

// Decode appends the text of tokens to dst. Token 256 becomes "<|endoftext|>".
func (byteTokenizer) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for i, t := range tokens {
		switch {
		case t < 0 || t > bytesEndOfText:
			return dst, beyond(i, t, bytesEndOfText+1)
		case t == bytesEndOfText:
			dst = append(dst, endOfTextName...)
		default:
			dst = append(dst, byte(t))
		}
	}
	return dst, nil
}
