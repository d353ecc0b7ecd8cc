package tokens

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"unicode"
	"unicode/utf8"
)

// Format is the file format of a shard.
type Format string

// The formats that Open reads.
const (
	FormatOwn     Format = "hetero-train"
	FormatLLMC    Format = "llm.c"
	FormatNanoGPT Format = "nanoGPT"
)

// NoToken is the value of Header.EndOfText if a shard has no end-of-text token.
const NoToken int32 = -1

// HeaderBytes is the size of the header of FormatOwn.
const HeaderBytes = 256

const (
	magic         = "HTTOKENS"
	version       = 1
	maxNameBytes  = 64
	llmcBytes     = 256 * 4
	llmcGPT2      = 20240520
	llmcLlama3    = 20240801
	noneEndOfText = math.MaxUint32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header describes the tokens of a shard.
//
// FormatOwn stores the header in 256 bytes, little-endian:
//
//	  0  8 bytes   "HTTOKENS"
//	  8  uint32    version, 1
//	 12  uint32    bytes per token, 2 or 4
//	 16  uint64    number of tokens, at least 1
//	 24  uint32    vocabulary size
//	 28  uint32    end-of-text token; 2^32-1 if there is none
//	 32  32 bytes  SHA-256 of all tokens as stored
//	 64  64 bytes  name of the tokenizer, UTF-8, padded with zeros
//	128  32 bytes  SHA-256 of the vocabulary file; zeros if the tokenizer needs no file
//	160  uint64    number of documents that end in this shard
//	168  84 bytes  zeros
//	252  uint32    CRC-32C of bytes 0 to 251
type Header struct {
	Format        Format
	TokenBytes    int      // bytes per token: 2 or 4
	Count         int64    // number of tokens
	Vocabulary    int      // vocabulary size; every token is smaller; 0 if the format does not contain it
	EndOfText     int32    // token that ends a document; NoToken if there is none, or if the format does not contain it
	Documents     int64    // number of documents that end in this shard; 0 if the format does not contain it
	Tokenizer     string   // name of the tokenizer; "" if the format does not contain it
	VocabularySum [32]byte // SHA-256 of the vocabulary file; zeros if there is none
	Sum           [32]byte // SHA-256 of the tokens; zeros if the format does not contain it
}

// TokenBytes returns the number of bytes that a shard uses for each token: 2 or 4. The parameter vocabulary is the
// vocabulary size.
func TokenBytes(vocabulary int) int {
	if vocabulary <= 1<<16 {
		return 2
	}
	return 4
}

// start returns the byte offset of the first token.
func (h *Header) start() int64 {
	switch h.Format {
	case FormatOwn:
		return HeaderBytes
	case FormatLLMC:
		return llmcBytes
	}
	return 0
}

// parseHeader reads a header. The parameter head contains the first 1,024 bytes of the file, or the whole file if it is
// shorter. The parameter size is the file size in bytes. The parameter width is the token size in files without a
// header (FormatNanoGPT); 0: such a file is an error.
func parseHeader(head []byte, size int64, width int) (Header, error) {
	if size == 0 {
		return Header{}, errors.New("the file is empty")
	}
	var h Header
	var err error
	switch {
	case bytes.HasPrefix(head, []byte(magic)):
		h, err = parseOwn(head)
	case len(head) >= 4 && isLLMC(binary.LittleEndian.Uint32(head)):
		h, err = parseLLMC(head)
	case size < HeaderBytes && bytes.HasPrefix([]byte(magic), head):
		return Header{}, fmt.Errorf("header: got %d bytes, want %d: the file is truncated", size, HeaderBytes)
	case hasDamagedMagic(head):
		return Header{}, fmt.Errorf("the file starts with %q, want %q: the header is damaged", head[:len(magic)], magic)
	case width > 0 && foreign(head) != "":
		return Header{},
			fmt.Errorf(
				"the file is %s, want tokens: convert it, for example with numpy's array.astype('uint16').tofile(FILE)",
				foreign(head))
	case width > 0:
		h = Header{Format: FormatNanoGPT, TokenBytes: width, Count: size / int64(width), EndOfText: NoToken}
	default:
		return Header{}, fmt.Errorf("the file starts with %q, want the header of a token shard (the name of a file of tokens without a header must end in .bin)",
			head[:min(len(head), 8)])
	}
	if err != nil {
		return Header{}, err
	}
	stored := size - h.start()
	if stored%int64(h.TokenBytes) != 0 || stored/int64(h.TokenBytes) != h.Count {
		if h.Format == FormatNanoGPT {
			return Header{},
				fmt.Errorf(
					"got %d bytes, want a multiple of %d, because the file has tokens of %[2]d bytes without a header",
					size, width)
		}
		return Header{}, fmt.Errorf("header: got %d tokens of %d bytes each, but %d bytes follow the header", h.Count,
			h.TokenBytes, stored)
	}
	return h, nil
}

// hasDamagedMagic reports whether the first 8 bytes of a header are wrong, but the other bytes match the checksum.
// Without this check, parseHeader would treat such a file as tokens without a header.
func hasDamagedMagic(head []byte) bool {
	if len(head) < HeaderBytes {
		return false
	}
	sum := crc32.Update(crc32.Checksum([]byte(magic), castagnoli), castagnoli, head[len(magic):252])
	return sum == binary.LittleEndian.Uint32(head[252:])
}

func isLLMC(magic uint32) bool { return magic == llmcGPT2 || magic == llmcLlama3 }

// parseLLMC reads a header that dev/data/data_common.py of llm.c wrote: 256 int32 values, of which only the first three
// are used.
func parseLLMC(head []byte) (Header, error) {
	if len(head) < llmcBytes {
		return Header{}, fmt.Errorf("llm.c header: got %d bytes, want %d: the file is truncated", len(head), llmcBytes)
	}
	field := func(i int) int32 { return int32(binary.LittleEndian.Uint32(head[4*i:])) }
	h := Header{Format: FormatLLMC, TokenBytes: 2, Tokenizer: "gpt2", Vocabulary: 50257, EndOfText: 50256}
	want := int32(1)
	if field(0) == llmcLlama3 {
		h.TokenBytes, h.Tokenizer, h.Vocabulary, h.EndOfText = 4, "llama3", 128256, 128000
		want = 7
	}
	if field(1) != want {
		return Header{}, fmt.Errorf("llm.c header: got version %d, want %d", field(1), want)
	}
	if h.Count = int64(field(2)); h.Count < 1 {
		return Header{}, fmt.Errorf("llm.c header: got %d tokens, want at least 1", h.Count)
	}
	return h, nil
}

func parseOwn(head []byte) (Header, error) {
	if len(head) < HeaderBytes {
		return Header{}, fmt.Errorf("header: got %d bytes, want %d: the file is truncated", len(head), HeaderBytes)
	}
	le := binary.LittleEndian
	if got := le.Uint32(head[8:]); got != version {
		return Header{}, fmt.Errorf("header: got version %d, want %d", got, version)
	}
	if got, want := crc32.Checksum(head[:252], castagnoli), le.Uint32(head[252:]); got != want {
		return Header{}, fmt.Errorf("header: got CRC-32C %08x, want %08x: the header is damaged", got, want)
	}
	h := Header{Format: FormatOwn, TokenBytes: int(le.Uint32(head[12:])), EndOfText: NoToken}
	count, documents, vocabulary, end := le.Uint64(head[16:]), le.Uint64(head[160:]), le.Uint32(head[24:]),
		le.Uint32(head[28:])
	name := head[64 : 64+maxNameBytes]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		if len(bytes.Trim(name[end:], "\x00")) != 0 {
			return Header{}, errors.New("header: the name of the tokenizer continues after a zero byte")
		}
		name = name[:end]
	}
	switch {
	case h.TokenBytes != 2 && h.TokenBytes != 4:
		return Header{}, fmt.Errorf("header: got %d bytes per token, want 2 or 4", h.TokenBytes)
	case count < 1 || count > math.MaxInt64/4:
		return Header{}, fmt.Errorf("header: got %d tokens, want at least 1", count)
	case vocabulary < 1 || vocabulary > math.MaxInt32 || h.TokenBytes == 2 && vocabulary > 1<<16:
		return Header{}, fmt.Errorf("header: got a vocabulary of %d tokens, want 1 to %d", vocabulary,
			mostTokens(h.TokenBytes))
	case end != noneEndOfText && end >= vocabulary:
		return Header{}, fmt.Errorf("header: got end-of-text token %d, want less than the vocabulary size, %d", end,
			vocabulary)
	case documents > count:
		return Header{}, fmt.Errorf("header: got %d documents, more than the %d tokens", documents, count)
	case !printable(name):
		return Header{}, fmt.Errorf("header: got tokenizer %q, want a name in printable UTF-8", name)
	case len(bytes.Trim(head[168:252], "\x00")) != 0:
		return Header{}, errors.New("header: bytes 168 to 251 are not zero, want zeros")
	}
	h.Count, h.Documents, h.Vocabulary, h.Tokenizer = int64(count), int64(documents), int(vocabulary), string(name)
	if end != noneEndOfText {
		h.EndOfText = int32(end)
	}
	copy(h.Sum[:], head[32:])
	copy(h.VocabularySum[:], head[128:])
	return h, nil
}

func mostTokens(tokenBytes int) int {
	if tokenBytes == 2 {
		return 1 << 16
	}
	return math.MaxInt32
}

func printable(name []byte) bool {
	if len(name) == 0 || !utf8.Valid(name) {
		return false
	}
	for _, r := range string(name) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// bytes encodes the header for a shard of FormatOwn.
func (h *Header) bytes() []byte {
	b := make([]byte, HeaderBytes)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], uint32(h.TokenBytes))
	le.PutUint64(b[16:], uint64(h.Count))
	le.PutUint32(b[24:], uint32(h.Vocabulary))
	le.PutUint32(b[28:], uint32(h.EndOfText)) // NoToken is stored as 2^32-1
	copy(b[32:64], h.Sum[:])
	copy(b[64:128], h.Tokenizer)
	copy(b[128:160], h.VocabularySum[:])
	le.PutUint64(b[160:], uint64(h.Documents))
	le.PutUint32(b[252:], crc32.Checksum(b[:252], castagnoli))
	return b
}
