package tokenizer

import (
	"fmt"
	"math"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

const (
	gpt2EndOfText = 50256 // also the number of ordinary tokens
	endOfTextName = "<|endoftext|>"
)

// gpt2 is the vocabulary of GPT-2. A merge whose result is a smaller token comes first.
type gpt2 struct {
	token map[string]int32 // maps the bytes of a token to the token
	bytes []string         // bytes of each token
	byte1 [256]int32       // token of each single byte
}

// GPT2 returns GPT-2's byte-pair encoding. It has 50,257 tokens; the last token ends a document.
var GPT2 = sync.OnceValue(func() Tokenizer {
	library := codec.NewR50kBase()
	g := &gpt2{token: make(map[string]int32, gpt2EndOfText), bytes: make([]string, gpt2EndOfText)}
	for i := range g.bytes {
		text, err := library.Decode([]uint{uint(i)})
		if err != nil {
			panic(fmt.Sprintf("the embedded vocabulary of GPT-2 has no token %d: %v", i, err))
		}
		g.bytes[i], g.token[text] = text, int32(i)
		if len(text) == 1 {
			g.byte1[text[0]] = int32(i)
		}
	}
	return g
})

func (g *gpt2) Name() string            { return "gpt2" }
func (g *gpt2) Vocabulary() int         { return gpt2EndOfText + 1 }
func (g *gpt2) EndOfText() int32        { return gpt2EndOfText }
func (g *gpt2) VocabularySum() [32]byte { return [32]byte{} }

// Decode appends the text of tokens to dst. Token 50256 becomes "<|endoftext|>".
func (g *gpt2) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for i, t := range tokens {
		switch {
		case t < 0 || t > gpt2EndOfText:
			return dst, beyond(i, t, g.Vocabulary())
		case t == gpt2EndOfText:
			dst = append(dst, endOfTextName...)
		default:
			dst = append(dst, g.bytes[t]...)
		}
	}
	return dst, nil
}

func (g *gpt2) NewEncoder() Encoder {
	return &gpt2Encoder{gpt2: g, cache: make(map[string][]int32)}
}

type gpt2Encoder struct {
	*gpt2
	merge merger
	cache map[string][]int32 // tokens of words that are not a single token
}

const (
	cachedWords     = 1 << 15 // capacity in words; if the cache is full, it is cleared
	cachedWordBytes = 64      // longer words are rare and are not cached
)

func (e *gpt2Encoder) Append(dst []int32, text []byte) []int32 {
	for len(text) > 0 {
		n := gpt2Word(text)
		word := text[:n]
		text = text[n:]
		if t, ok := e.token[string(word)]; ok {
			dst = append(dst, t)
			continue
		}
		if n > cachedWordBytes {
			dst = e.merge.append(dst, e.gpt2, word)
			continue
		}
		tokens, ok := e.cache[string(word)]
		if !ok {
			tokens = e.merge.append(nil, e.gpt2, word)
			if len(e.cache) == cachedWords {
				clear(e.cache)
			}
			e.cache[string(word)] = tokens
		}
		dst = append(dst, tokens...)
	}
	return dst
}

// class is the character class in the expression that splits text into words.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

var asciiClass = func() (c [utf8.RuneSelf]class) {
	for r := range c {
		c[r] = classOf(rune(r))
	}
	return c
}()

func classOf(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classAt returns the class of the character at position i, and its length in bytes.
func classAt(text []byte, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return classOf(r), n
}

// gpt2Word returns the length in bytes of the first word of text. The text must not be empty. GPT-2 defines words by
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Word(text []byte) int {
	if text[0] == '\'' {
		if n := contraction(text); n > 0 {
			return n
		}
	}
	i := 0
	if text[0] == ' ' && len(text) > 1 {
		i = 1
	}
	kind, n := classAt(text, i)
	if kind == space {
		return spaces(text)
	}
	for i += n; i < len(text); i += n {
		var k class
		if k, n = classAt(text, i); k != kind {
			break
		}
	}
	return i
}

// contraction returns the length in bytes of a contraction such as 're at the start of text, or 0.
func contraction(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(text) > 2 && text[2] == 'e' {
			return 3
		}
	case 'l':
		if len(text) > 2 && text[2] == 'l' {
			return 3
		}
	}
	return 0
}

// spaces returns the length in bytes of the white space at the start of text. If a word follows several white-space
// characters, the last of them belongs to this word.
func spaces(text []byte) int {
	last, i := 0, 0
	for i < len(text) {
		k, n := classAt(text, i)
		if k != space {
			if last > 0 {
				return last
			}
			return i
		}
		last = i
		i += n
	}
	return i
}

// merger merges the bytes of a word into tokens. It always merges the adjacent pair of parts whose result has the
// lowest token. Among equal results, the leftmost pair comes first. The buffers are reused.
type merger struct {
	next, prev []int32 // for each start of a part: start of the next part, and start of the previous part
	rank       []int32 // for each start of a part: token of this part merged with the next one, or noRank
	heap       []candidate
}

const noRank = math.MaxInt32

// candidate is a possible merge of the part at position at with the next part.
type candidate struct{ rank, at int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

func (m *merger) append(dst []int32, g *gpt2, word []byte) []int32 {
	n := int32(len(word))
	m.next, m.prev, m.rank, m.heap = m.next[:0], m.prev[:0], m.rank[:0], m.heap[:0]
	for i := range n {
		m.next, m.prev, m.rank = append(m.next, i+1), append(m.prev, i-1), append(m.rank, noRank)
	}
	for i := range n {
		m.propose(g, word, i)
	}
	for len(m.heap) > 0 {
		c := m.pop()
		if m.rank[c.at] != c.rank {
			continue // one of the two parts was already merged with another part
		}
		gone := m.next[c.at]
		m.rank[gone] = noRank
		m.next[c.at] = m.next[gone]
		if m.next[gone] < n {
			m.prev[m.next[gone]] = c.at
		}
		m.propose(g, word, c.at)
		if m.prev[c.at] >= 0 {
			m.propose(g, word, m.prev[c.at])
		}
	}
	for i := int32(0); i < n; i = m.next[i] {
		if m.next[i] == i+1 {
			dst = append(dst, g.byte1[word[i]])
		} else {
			dst = append(dst, g.token[string(word[i:m.next[i]])])
		}
	}
	return dst
}

// propose adds the merge of the part at i with the next part to the heap if the result is a token.
func (m *merger) propose(g *gpt2, word []byte, i int32) {
	m.rank[i] = noRank
	middle := m.next[i]
	if int(middle) >= len(word) {
		return
	}
	if t, ok := g.token[string(word[i:m.next[middle]])]; ok {
		m.rank[i] = t
		m.push(candidate{t, i})
	}
}

// push and pop maintain a binary heap. The first candidate of the heap is the next merge.
func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	i := len(m.heap) - 1
	for i > 0 && m.heap[i].before(m.heap[(i-1)/2]) {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
		i = (i - 1) / 2
	}
}

func (m *merger) pop() candidate {
	first := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && m.heap[child+1].before(m.heap[child]) {
			child++
		}
		if !m.heap[child].before(m.heap[i]) {
			return first
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
