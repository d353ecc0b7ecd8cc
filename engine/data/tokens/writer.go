package tokens

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Writer writes a shard of FormatOwn. It writes the tokens to PATH.part. Finish adds the header and renames the file to
// PATH, so a shard at PATH is always complete.
//
// A Writer can continue the part file of an earlier process. Sync flushes all tokens to disk. Resume keeps a given
// number of tokens.
type Writer struct {
	h    Header
	path string
	f    *os.File
	out  *bufio.Writer
	sum  hash.Hash
	buf  []byte
}

// Create starts a shard and overwrites a part file of an earlier attempt. The caller must set Tokenizer, Vocabulary,
// EndOfText and VocabularySum of the header.
func Create(path string, h Header) (*Writer, error) { return Resume(path, h, 0, 0) }

// Resume opens the part file of a shard, and keeps its tokens up to the number count. The parameter documents is the
// number of documents that end in these tokens. If the shard is already finished, Resume renames it to the part file.
func Resume(path string, h Header, count, documents int64) (*Writer, error) {
	if h.Vocabulary < 1 || len(h.Tokenizer) > maxNameBytes || !printable([]byte(h.Tokenizer)) ||
		h.EndOfText >= int32(h.Vocabulary) {
		return nil, fmt.Errorf("write token shard: invalid header: tokenizer %q, vocabulary %d, end of text %d",
			h.Tokenizer, h.Vocabulary, h.EndOfText)
	}
	h.Format, h.TokenBytes, h.Count, h.Documents = FormatOwn, TokenBytes(h.Vocabulary), count, documents
	w := &Writer{h: h, path: path, sum: sha256.New()}
	var err error
	if count == 0 {
		w.f, err = regular.Create(w.part())
	} else {
		if _, err := os.Lstat(w.part()); errors.Is(err, os.ErrNotExist) {
			if err := os.Rename(path, w.part()); err != nil {
				return nil, err
			}
		}
		w.f, err = regular.Reopen(w.part())
	}
	if err != nil {
		return nil, err
	}
	if err := w.keep(count); err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	w.out = bufio.NewWriterSize(w.f, 1<<20)
	return w, nil
}

func (w *Writer) part() string { return w.path + ".part" }

// keep truncates the part file to count tokens and computes their hash.
func (w *Writer) keep(count int64) error {
	end := HeaderBytes + count*int64(w.h.TokenBytes)
	info, err := w.f.Stat()
	if err != nil {
		return err
	}
	if count > 0 && info.Size() < end {
		return fmt.Errorf("resume %s: %d bytes, want at least %d", w.part(), info.Size(), end)
	}
	if err := w.f.Truncate(end); err != nil { // also reserves space for the header
		return err
	}
	_, err = w.f.Seek(HeaderBytes, io.SeekStart)
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{w.sum}, struct{ io.Reader }{w.f}, make([]byte, 1<<20))
	}
	return err
}

// Count returns the number of tokens written so far.
func (w *Writer) Count() int64 { return w.h.Count }

// Documents returns the number of end-of-text tokens written so far.
func (w *Writer) Documents() int64 { return w.h.Documents }

// Append adds tokens to the shard.
func (w *Writer) Append(tokens []int32) error {
	w.buf = w.buf[:0]
	for _, t := range tokens {
		if uint32(t) >= uint32(w.h.Vocabulary) {
			return fmt.Errorf("write %s: token %d is %d, want below %d", w.part(),
				w.h.Count+int64(len(w.buf)/w.h.TokenBytes), t, w.h.Vocabulary)
		}
		if t == w.h.EndOfText {
			w.h.Documents++
		}
		if w.h.TokenBytes == 2 {
			w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(t))
		} else {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(t))
		}
	}
	w.h.Count += int64(len(tokens))
	w.sum.Write(w.buf)
	_, err := w.out.Write(w.buf)
	return err
}

// Sync flushes all tokens written so far to disk.
func (w *Writer) Sync() error {
	if err := w.out.Flush(); err != nil {
		return err
	}
	return w.f.Sync()
}

// Finish completes the shard and returns its header. It returns an error if the shard has no tokens.
func (w *Writer) Finish() (Header, error) {
	err := w.finish()
	return w.h, errors.Join(err, w.f.Close())
}

func (w *Writer) finish() error {
	if w.h.Count == 0 {
		return fmt.Errorf("write %s: no tokens", w.path)
	}
	w.sum.Sum(w.h.Sum[:0])
	if err := w.out.Flush(); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(w.h.bytes(), 0); err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(w.part(), w.path); err != nil {
		return err
	}
	return platform.SyncFolder(filepath.Dir(w.path))
}

// Close closes the part file without finishing the shard. Resume can continue it.
func (w *Writer) Close() error { return w.f.Close() }
