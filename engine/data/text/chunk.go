package text

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/pyjson"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

const (
	chunkBytes = 512 << 10 // bytes of text that one goroutine encodes at a time
	// largest size in bytes of a line of JSON, or of a text without white space; limits the memory of a chunk
	mostPartBytes = 16 << 20
)

// byteOrderMark is U+FEFF in UTF-8. Some editors on Windows write it at the start of a file. It is not part of the
// text.
var byteOrderMark = []byte("\ufeff")

// position is the position in the input from which reading continues.
type position struct {
	Source   int   `json:"source"`   // index of the source
	Offset   int64 `json:"offset"`   // byte offset in the decompressed text
	Line     int64 `json:"line"`     // number of lines before Offset; only for JSON lines
	Document int64 `json:"document"` // number of the current document
	Open     bool  `json:"open"`     // the current document already has tokens
	MidLine  bool  `json:"mid_line"` // Offset is not the start of a line
	Empty    int64 `json:"empty"`    // number of documents that were left out
}

// piece is a part of a chunk. All of its text belongs to one document.
type piece struct {
	from, to int  // byte range within the chunk
	ends     bool // the piece is the last of its document
	eval     bool
	line     int64 // line number in the source; only for JSON lines
}

// chunk contains pieces of a source and their tokens. One goroutine encodes it.
type chunk struct {
	source *Source
	offset int64 // byte offset of text in the source
	text   []byte
	pieces []piece
	after  position

	train, eval []int32
	empty       int64 // number of JSON documents without text
	faulty      int64 // number of JSON lines that were left out because of Options.SkipFaulty
	firstFault  error // error of the first line that was left out
	unknown     int64 // number of unknown tokens
	err         error
	done        chan struct{}
}

// cutter splits sources into chunks.
type cutter struct {
	ctx     context.Context
	o       *Options
	sources []Source
	stored  *atomic.Int64 // number of bytes read from all files
	at      position
	in      *stream
	buf     []byte // text that starts at at.Offset
	end     bool   // buf contains the whole rest of the source
	tail    int64  // byte offset at which the evaluation part of a plain text starts; -1 if there is none
}

// next sets c to the next chunk. It returns io.EOF after the last chunk.
func (k *cutter) next(c *chunk) error {
	for {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		if k.in == nil {
			if k.at.Source == len(k.sources) {
				return io.EOF
			}
			if err := k.begin(); err != nil {
				return err
			}
		}
		if err := k.fill(); err != nil {
			return err
		}
		if k.at.Offset == 0 && bytes.HasPrefix(k.buf, byteOrderMark) {
			k.buf = k.buf[:copy(k.buf, k.buf[len(byteOrderMark):])]
			k.at.Offset = int64(len(byteOrderMark))
		}
		n := k.cut(c)
		if n == 0 && !k.end {
			if len(k.buf) >= mostPartBytes {
				return data.FileFault("read text", k.source().Path,
					fmt.Errorf("no %s within %d bytes after byte %d of the text", k.wants(), len(k.buf), k.at.Offset))
			}
			k.grow()
			continue
		}
		c.source, c.offset = k.source(), k.at.Offset
		c.text = append(c.text[:0], k.buf[:n]...)
		k.buf = k.buf[:copy(k.buf, k.buf[n:])]
		k.at.Offset += int64(n)
		if k.end && len(k.buf) == 0 {
			k.finish()
		}
		c.after = k.at
		return nil
	}
}

func (k *cutter) source() *Source { return &k.sources[k.at.Source] }

func (k *cutter) wants() string {
	if k.source().Lines {
		return "line end"
	}
	return "white space between words"
}

// begin opens the current source.
func (k *cutter) begin() (err error) {
	s := k.source()
	k.tail = -1
	if k.o.EvalFraction > 0 && !s.Lines && k.o.Separator == nil {
		size, err := s.length(k.ctx)
		if err != nil {
			return err
		}
		k.tail = int64(float64(size) * (1 - k.o.EvalFraction))
	}
	k.in, err = s.open(k.ctx, k.at.Offset, k.stored)
	k.buf, k.end = k.buf[:0], false
	if cap(k.buf) < k.o.chunk {
		k.buf = make([]byte, 0, k.o.chunk)
	}
	return err
}

// finish closes the current source and moves to the next one.
func (k *cutter) finish() {
	k.in.close()
	k.in = nil
	k.at = position{Source: k.at.Source + 1, Document: k.at.Document, Empty: k.at.Empty}
}

func (k *cutter) close() {
	if k.in != nil {
		k.in.close()
	}
}

func (k *cutter) grow() {
	larger := make([]byte, len(k.buf), min(2*cap(k.buf), mostPartBytes))
	copy(larger, k.buf)
	k.buf = larger
}

// fill reads until the buffer is full or the source ends. It checks that the text is UTF-8.
func (k *cutter) fill() error {
	from := len(k.buf)
	for len(k.buf) < cap(k.buf) && !k.end {
		n, err := k.in.Read(k.buf[len(k.buf):cap(k.buf)])
		k.buf = k.buf[:len(k.buf)+n]
		if err == io.EOF {
			k.end = true
		} else if err != nil {
			return readFault(k.source().Path, k.at.Offset+int64(len(k.buf)), err)
		}
	}
	from -= incomplete(k.buf[:from])
	if bad := invalid(k.buf[from:], k.end); bad >= 0 {
		return notUTF8(k.source().Path, k.at.Offset+int64(from+bad), k.buf[from+bad:])
	}
	return nil
}

// cut selects the pieces of the next chunk and advances the document number. It returns the size of the chunk in bytes.
// It returns 0 if the buffer must first grow.
func (k *cutter) cut(c *chunk) int {
	c.pieces = c.pieces[:0]
	switch {
	case k.source().Lines:
		return k.cutLines(c)
	case k.o.Separator != nil:
		return k.cutSeparated(c)
	}
	return k.cutPlain(c)
}

// cutPlain adds a piece of a file without separators. Such a file is one document, or two if its end is for evaluation.
func (k *cutter) cutPlain(c *chunk) int {
	n, ends := len(k.buf), k.end
	eval := k.source().Eval || k.tail >= 0 && k.at.Offset >= k.tail
	if k.tail > k.at.Offset && k.tail-k.at.Offset < int64(n) {
		n, ends = int(k.tail-k.at.Offset), true
		for n < len(k.buf) && !utf8.RuneStart(k.buf[n]) {
			n++
		}
		k.tail = k.at.Offset + int64(n)
	}
	if !ends {
		n = tokenizer.Cut(k.buf[:n-incomplete(k.buf)])
	}
	k.add(c, 0, n, ends, eval)
	return n
}

// add appends a piece of the current document. It leaves out documents that contain only white space.
func (k *cutter) add(c *chunk, from, to int, ends, eval bool) {
	if from == to && !ends {
		return
	}
	blank := len(bytes.TrimSpace(k.buf[from:to])) == 0
	if ends && blank && !k.at.Open {
		if from < to {
			k.at.Empty++
		}
		return
	}
	c.pieces = append(c.pieces, piece{from: from, to: to, ends: ends, eval: eval})
	k.at.Open = !ends
	if ends {
		k.at.Document++
	}
}

// evaluates reports whether the current document is for evaluation. If EvalFraction is 0, this depends on the source;
// otherwise it is a function of the document number.
func (k *cutter) evaluates() bool {
	if k.o.EvalFraction == 0 {
		return k.source().Eval
	}
	r := data.NewRandom(0, 0, int(k.at.Document), data.ForDocuments)
	return r.Float64() < k.o.EvalFraction
}

// cutSeparated splits the complete lines of the buffer into documents.
func (k *cutter) cutSeparated(c *chunk) int {
	start := 0 // start of the current document
	for line := 0; line < len(k.buf); {
		next := len(k.buf)
		if n := bytes.IndexByte(k.buf[line:], '\n'); n >= 0 {
			next = line + n + 1
		} else if !k.end {
			break
		}
		whole := bytes.TrimRight(k.buf[line:next], "\r\n")
		if !(line == 0 && k.at.MidLine) && bytes.Equal(whole, k.o.Separator) {
			k.add(c, start, line, true, k.evaluates())
			start = next
		}
		line = next
	}
	switch {
	case k.end:
		k.add(c, start, len(k.buf), true, k.evaluates())
		return len(k.buf)
	case start > 0:
		k.at.MidLine = false
		return start
	}
	// One document fills the buffer. A short incomplete last line may be the beginning of a separator, so it remains in
	// the buffer.
	n := bytes.LastIndexByte(k.buf, '\n') + 1
	if len(k.buf)-n > len(k.o.Separator)+2 {
		n = len(k.buf) - incomplete(k.buf)
	}
	if n = tokenizer.Cut(k.buf[:n]); n > 0 {
		k.add(c, 0, n, false, k.evaluates())
		k.at.MidLine = true // the chunk may end within a line
	}
	return n
}

// cutLines makes one piece of each complete line.
func (k *cutter) cutLines(c *chunk) int {
	at := 0
	for at < len(k.buf) {
		next := len(k.buf)
		if n := bytes.IndexByte(k.buf[at:], '\n'); n >= 0 {
			next = at + n + 1
		} else if !k.end {
			break
		}
		k.at.Line++
		if len(bytes.TrimSpace(k.buf[at:next])) > 0 {
			c.pieces = append(c.pieces, piece{from: at, to: next, ends: true, eval: k.evaluates(), line: k.at.Line})
			k.at.Document++
		}
		at = next
	}
	return at
}

// encode computes the tokens of a chunk.
func (c *chunk) encode(e tokenizer.Encoder, o *Options) {
	c.train, c.eval, c.empty, c.faulty, c.firstFault, c.unknown, c.err = c.train[:0], c.eval[:0], 0, 0, nil, 0, nil
	defer c.countUnknown(o.Tokenizer)
	for _, p := range c.pieces {
		text := c.text[p.from:p.to]
		if c.source.Lines {
			var err error
			if text, err = field(text, o.Field); err != nil {
				fault := data.FileFault("read text", c.source.Path,
					fmt.Errorf("line %d (byte %d of the text): %w", p.line, c.offset+int64(p.from), err))
				if !o.SkipFaulty {
					fault.Advice = "--bad-lines skip leaves out such lines"
					c.err = fault
					return
				}
				if c.faulty++; c.firstFault == nil {
					c.firstFault = fault
				}
				continue
			}
			if len(bytes.TrimSpace(text)) == 0 {
				c.empty++
				continue
			}
		}
		to := &c.train
		if p.eval {
			to = &c.eval
		}
		*to = e.Append(*to, text)
		if p.ends {
			*to = append(*to, o.Tokenizer.EndOfText())
		}
	}
}

// countUnknown counts the unknown tokens. Only WordPiece has such a token.
func (c *chunk) countUnknown(t tokenizer.Tokenizer) {
	w, ok := t.(*tokenizer.WordPiece)
	if !ok {
		return
	}
	for _, list := range [][]int32{c.train, c.eval} {
		for _, token := range list {
			if token == w.Specials.Unknown {
				c.unknown++
			}
		}
	}
}

// field returns the string of a JSON object's field.
func field(line []byte, name string) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := pyjson.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	raw, ok := object[name]
	if !ok {
		names := make([]string, 0, len(object))
		for n := range object {
			names = append(names, n)
		}
		return nil, fmt.Errorf("no field %q; the object has %s", name, list(names))
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || raw[0] != '"' {
		return nil, fmt.Errorf("field %q is %.20s, want a string", name, raw)
	}
	// Package json replaces an unpaired surrogate by U+FFFD without an error.
	if n := bytes.Count([]byte(text), []byte("\ufffd")); n > 0 && n != bytes.Count(raw, []byte("\ufffd"))+
		bytes.Count(bytes.ToLower(raw), []byte(`\ufffd`)) {
		return nil, fmt.Errorf("field %q contains half a surrogate pair, which is not a valid character", name)
	}
	return []byte(text), nil
}

var errNoText = errors.New("no text: white space only")

// list returns up to 20 sorted names as text.
func list(names []string) string {
	slices.Sort(names)
	if len(names) > 20 {
		names = append(names[:20:20], "…")
	}
	return fmt.Sprintf("%q", names)
}
