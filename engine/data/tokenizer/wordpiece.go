package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	mostVocabularyBytes = 64 << 20
	mostWordRunes       = 100 // longer words become [UNK], as in BERT
	pieceMark           = "##"
)

// Specials are the tokens of BERT that do not represent text.
type Specials struct{ Pad, Unknown, Class, Separator, Mask int32 }

// WordPiece is BERT's tokenizer. Its end-of-text token is [SEP].
type WordPiece struct {
	Specials Specials
	cased    bool
	sum      [32]byte
	words    []string         // text of each token
	begins   map[string]int32 // maps a token at the start of a word to its id
	follows  map[string]int32 // maps a token that continues a word, without ##, to its id
	longest  int              // length of the longest token in bytes
}

// OpenWordPiece reads a vocabulary, a text file with one token per line. The id of a token is its line number, counted
// from 0. Tokens that continue a word start with ##. If cased is true, the tokenizer keeps capital letters and accents.
// If the file is faulty, the error is a *data.Fault.
func OpenWordPiece(path string, cased bool) (*WordPiece, error) {
	file, err := regular.Read(path, mostVocabularyBytes)
	if err != nil {
		fault := &data.Fault{Op: "read vocabulary", Path: path, Index: -1, Err: err}
		if errors.Is(err, fs.ErrNotExist) {
			fault.Advice = "want the vocab.txt of a BERT model, for example from hf download google-bert/bert-base-uncased vocab.txt --local-dir bert-base-uncased"
		}
		return nil, fault
	}
	w, err := ParseWordPiece(file, cased)
	if err != nil {
		return nil, &data.Fault{Op: "read vocabulary", Path: path, Index: -1, Err: err,
			Advice: "want the vocab.txt of a BERT model: one token per line"}
	}
	return w, nil
}

// ParseWordPiece returns the tokenizer for the contents of a vocabulary file.
func ParseWordPiece(file []byte, cased bool) (*WordPiece, error) {
	w := &WordPiece{cased: cased, sum: sha256.Sum256(file), begins: map[string]int32{}, follows: map[string]int32{}}
	if len(file) == 0 {
		return nil, errors.New("the file is empty")
	}
	file = bytes.TrimPrefix(file, []byte("\ufeff")) // some editors on Windows write a byte order mark
	for at, line := range bytes.Split(bytes.TrimSuffix(file, []byte("\n")), []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("line %d is not UTF-8: %.40q", at+1, line)
		}
		if len(line) == 0 {
			return nil, fmt.Errorf("line %d is empty, want a token", at+1)
		}
		token, into := string(line), w.begins
		w.words = append(w.words, token)
		w.longest = max(w.longest, len(token))
		if rest, ok := strings.CutPrefix(token, pieceMark); ok && rest != "" {
			token, into = rest, w.follows
		}
		if first, twice := into[token]; twice {
			return nil, fmt.Errorf("lines %d and %d are both %.40q, want each token once", first+1, at+1, line)
		}
		into[token] = int32(at)
	}
	for name, to := range map[string]*int32{"[PAD]": &w.Specials.Pad, "[UNK]": &w.Specials.Unknown,
		"[CLS]": &w.Specials.Class, "[SEP]": &w.Specials.Separator, "[MASK]": &w.Specials.Mask} {
		t, ok := w.begins[name]
		if !ok {
			return nil, fmt.Errorf("%d tokens without %s", len(w.words), name)
		}
		*to = t
	}
	return w, nil
}

// Name returns wordpiece or wordpiece-cased.
func (w *WordPiece) Name() string {
	if w.cased {
		return "wordpiece-cased"
	}
	return "wordpiece"
}

// Vocabulary returns the number of tokens.
func (w *WordPiece) Vocabulary() int { return len(w.words) }

// EndOfText returns [SEP].
func (w *WordPiece) EndOfText() int32 { return w.Specials.Separator }

// VocabularySum returns the SHA-256 of the vocabulary file.
func (w *WordPiece) VocabularySum() [32]byte { return w.sum }

// Token returns the id of a token that is a whole word or a special token such as "[MASK]". It returns false if the
// vocabulary lacks the token.
func (w *WordPiece) Token(word string) (int32, bool) {
	t, ok := w.begins[word]
	return t, ok
}

// Decode appends words with single spaces between them to dst, because the original white space is unknown.
func (w *WordPiece) Decode(dst []byte, tokens []int32) ([]byte, error) {
	begin := len(dst)
	for i, t := range tokens {
		if t < 0 || int(t) >= len(w.words) {
			return dst, beyond(i, t, len(w.words))
		}
		piece, follows := strings.CutPrefix(w.words[t], pieceMark)
		switch {
		case !follows || piece == "":
			piece = w.words[t]
			if len(dst) > begin {
				dst = append(dst, ' ')
			}
		}
		dst = append(dst, piece...)
	}
	return dst, nil
}

// NewEncoder returns an Encoder for one goroutine.
func (w *WordPiece) NewEncoder() Encoder {
	return &wordPieceEncoder{WordPiece: w, cache: map[string][]int32{}, plain: map[rune]string{}}
}

type wordPieceEncoder struct {
	*WordPiece
	word  []byte // the normalised part of the current word
	runes int    // number of characters of the word; word stops growing at mostWordRunes
	cache map[string][]int32
	plain map[rune]string // results of plainForm
}

func (e *wordPieceEncoder) Append(dst []int32, text []byte) []int32 {
	for i := 0; i < len(text); {
		if b := text[i]; b < utf8.RuneSelf {
			i++
			dst = e.appendASCII(dst, b)
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		i += n
		dst = e.appendRune(dst, r)
	}
	return e.endWord(dst)
}

func (e *wordPieceEncoder) appendASCII(dst []int32, b byte) []int32 {
	switch asciiKind[b] {
	case kindSpace:
		return e.endWord(dst)
	case kindRemoved:
		return dst
	case kindPunctuation:
		dst = e.endWord(dst)
		e.addByte(b)
		return e.endWord(dst)
	}
	if !e.cased && 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	e.addByte(b)
	return dst
}

func (e *wordPieceEncoder) addByte(b byte) {
	if e.runes++; e.runes <= mostWordRunes {
		e.word = append(e.word, b)
	}
}

// appendRune processes a character outside ASCII.
func (e *wordPieceEncoder) appendRune(dst []int32, r rune) []int32 {
	switch {
	case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		return dst
	case unicode.IsSpace(r):
		return e.endWord(dst)
	}
	ideograph := isIdeograph(r)
	if ideograph {
		dst = e.endWord(dst)
	}
	if e.cased {
		dst = e.addRune(dst, r)
	} else {
		for _, part := range e.plainForm(r) {
			dst = e.addRune(dst, part)
		}
	}
	if ideograph {
		dst = e.endWord(dst)
	}
	return dst
}

// plainForm returns a character in lower case and without accents. It decomposes the character (NFD) and removes
// combining marks.
func (e *wordPieceEncoder) plainForm(r rune) string {
	form, ok := e.plain[r]
	if !ok {
		var b strings.Builder
		for _, part := range norm.NFD.String(string(r)) {
			if !unicode.Is(unicode.Mn, part) {
				b.WriteRune(unicode.ToLower(part))
			}
		}
		form = b.String()
		e.plain[r] = form
	}
	return form
}

func (e *wordPieceEncoder) addRune(dst []int32, r rune) []int32 {
	punctuation := r < utf8.RuneSelf && asciiKind[r] == kindPunctuation || unicode.IsPunct(r)
	if punctuation {
		dst = e.endWord(dst)
	}
	if e.runes++; e.runes <= mostWordRunes {
		e.word = utf8.AppendRune(e.word, r)
	}
	if punctuation {
		dst = e.endWord(dst)
	}
	return dst
}

// endWord appends the tokens of the current word, if there is one.
func (e *wordPieceEncoder) endWord(dst []int32) []int32 {
	if e.runes == 0 {
		return dst
	}
	word, runes := e.word, e.runes
	e.word, e.runes = e.word[:0], 0
	if runes > mostWordRunes {
		return append(dst, e.Specials.Unknown)
	}
	if t, ok := e.begins[string(word)]; ok {
		return append(dst, t)
	}
	tokens, ok := e.cache[string(word)]
	if !ok {
		tokens = e.pieces(word)
		if len(e.cache) == cachedWords {
			clear(e.cache)
		}
		e.cache[string(word)] = tokens
	}
	return append(dst, tokens...)
}

// pieces splits a word into tokens. From left to right, it always takes the longest token. If no token matches, the
// result is [UNK].
func (w *WordPiece) pieces(word []byte) []int32 {
	var tokens []int32
	for from := w.begins; len(word) > 0; from = w.follows {
		n := min(len(word), w.longest)
		t, ok := from[string(word[:n])]
		for ; !ok && n > 0; t, ok = from[string(word[:n])] {
			n--
		}
		if !ok {
			return []int32{w.Specials.Unknown}
		}
		tokens = append(tokens, t)
		word = word[n:]
	}
	return tokens
}

const (
	kindWord = iota
	kindSpace
	kindRemoved
	kindPunctuation
)

// asciiKind classifies ASCII characters. Unlike Unicode, it treats $, +, <, =, >, ^, `, | and ~ as punctuation.
var asciiKind = func() (k [utf8.RuneSelf]uint8) {
	for b := range k {
		switch r := rune(b); {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			k[b] = kindSpace
		case unicode.IsControl(r):
			k[b] = kindRemoved
		case unicode.IsPunct(r) || unicode.IsSymbol(r):
			k[b] = kindPunctuation
		}
	}
	return k
}()

// isIdeograph reports whether r is in one of the blocks that BERT treats as Chinese.
func isIdeograph(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B73F || 0x2B740 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF ||
		0xF900 <= r && r <= 0xFAFF || 0x2F800 <= r && r <= 0x2FA1F
}
