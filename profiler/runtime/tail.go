package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	// tailChunkBytes is the size of a read in bytes. It is much larger than a record. Larger reads would not be
	// faster.
	tailChunkBytes = 64 << 10

	// mostTailLine is the largest size of a line in bytes. A line with values of 10,000 ranks has 2 MiB.
	mostTailLine = 16 << 20

	// mostSkippedBytes is the largest total size of lines that are too long. A file that exceeds it is not a file of
	// records, and may be a sparse file that would take minutes to read.
	mostSkippedBytes = 256 << 20

	// markBytes is the size of growing.mark in bytes. It is large enough for a record's iteration and timestamp.
	markBytes = 1024
)

// Tail reads a file of metric records while a Writer appends to it. Each call of Next continues after the last record
// that was read. Between calls, the file is closed. A Tail is not safe for concurrent use.
//
//	tail := runtime.NewTail(logs, runtime.FileName(rank))   // logs is an *os.Root
//	for {
//		more, err := tail.Next(8<<20, func(offset int64, r *runtime.Record) { … })
//		…
//	}
type Tail struct{ growing }

// growing is a file that another process extends or replaces.
type growing struct {
	root *os.Root
	name string

	file   os.FileInfo // state of the file at the last call; nil before the first call
	offset int64       // end of the last record or line that was read
	mark   []byte      // text before offset; it detects another file with the same name

	skipped int64 // total size of the lines that were too long, in bytes

	Replaced int   // number of times that the writer has replaced the file, for example because a run has resumed
	Damaged  int   // number of complete lines that were not records
	Size     int64 // size of the file at the last call, in bytes
	// Cut means that the end of the file was missing when the last call had read the whole file. A Writer may be
	// writing to the file. If there is no Writer, the file is an incomplete copy, or the system has lost the end of the
	// file.
	Cut bool
}

// NewTail returns a Tail that starts at the first record of the file name in root. The file need not exist yet.
func NewTail(root *os.Root, name string) *Tail { return &Tail{growing{root: root, name: name}} }

// Name returns the name of the file.
func (g *growing) Name() string { return g.name }

// Offset returns the number of bytes read.
func (g *growing) Offset() int64 { return g.offset }

// Found reports whether the file existed at the last call of Next.
func (g *growing) Found() bool { return g.file != nil }

// Next calls visit with the records after the last call, in order, until it has read about limit bytes. The argument
// offset of visit is the position of the record in the file, for ReadFrom. more means that the limit was reached.
//
// A Writer replaces its file when a run resumes or rolls back. The next call of Next then increments t.Replaced and
// reads from the start of the file. The caller must drop the records that it has already received. A missing file
// counts as a file without records.
func (t *Tail) Next(limit int64, visit func(offset int64, r *Record)) (more bool, err error) {
	err = t.next(func(file io.ReaderAt) error {
		end := t.offset + limit
		s, err := scan(file, t.offset, end, func(at int64, r *Record) bool {
			visit(at, r)
			return at < end
		})
		t.offset, t.Damaged, t.Cut, more = s.next, t.Damaged+s.damaged, s.cut, s.more
		t.skipped += s.skipped
		return err
	})
	return more, err
}

// next calls read with the open file if the file has changed. If it is another file than before, next first moves to
// its start.
func (g *growing) next(read func(io.ReaderAt) error) error {
	file, info, err := regular.OpenIn(g.root, g.name)
	if errors.Is(err, fs.ErrNotExist) {
		if g.file != nil {
			g.restart(nil)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer file.Close() // read only
	if g.file != nil && !g.isSame(file, info) {
		g.restart(info)
	}
	g.file, g.Size, g.Cut = info, info.Size(), false
	if info.Size() == g.offset {
		return nil
	}
	if g.skipped <= mostSkippedBytes {
		err = read(file)
		if err == nil {
			g.mark = make([]byte, min(g.offset, markBytes))
			_, err = file.ReadAt(g.mark, g.offset-int64(len(g.mark)))
		}
	}
	if err == nil && g.skipped > mostSkippedBytes {
		err = errSkipped
	}
	if err != nil {
		return fmt.Errorf("read records %s: %w", g.name, err)
	}
	return nil
}

// isSame reports whether file is the file of the last call. It compares the text, because a new file may have the
// inode number of a deleted one.
func (g *growing) isSame(file io.ReaderAt, info os.FileInfo) bool {
	if !os.SameFile(g.file, info) || info.Size() < g.offset {
		return false
	}
	mark := make([]byte, len(g.mark))
	_, err := file.ReadAt(mark, g.offset-int64(len(mark)))
	return err == nil && bytes.Equal(mark, g.mark)
}

func (g *growing) restart(info os.FileInfo) {
	g.Replaced++
	g.file, g.offset, g.mark, g.skipped, g.Damaged, g.Cut = info, 0, nil, 0, 0, false
}

// errSkipped reports too many bytes in overlong lines. It is returned for the file until another file replaces it.
var errSkipped = fmt.Errorf("got lines of more than %d MiB in sum that are too long, want records",
	mostSkippedBytes>>20)

// LineTail reads a file of lines while another process appends to it; see Tail.
type LineTail struct{ growing }

// NewLineTail returns a LineTail that starts at the first line of the file name in root. The file need not exist yet.
func NewLineTail(root *os.Root, name string) *LineTail {
	return &LineTail{growing{root: root, name: name}}
}

// Next calls visit with the complete lines after the last call, without line ends, until it has read about limit bytes.
// It skips and counts lines of more than 16 MiB. The text is valid only during the call. If the file was replaced, Next
// increments t.Replaced and reads from the start of the file.
func (t *LineTail) Next(limit int64, visit func(line []byte)) (more bool, err error) {
	err = t.next(func(file io.ReaderAt) error {
		chunk := make([]byte, tailChunkBytes)
		for end := t.offset + limit; ; {
			n, err := file.ReadAt(chunk, t.offset)
			if err != nil && err != io.EOF {
				return err
			}
			last := bytes.LastIndexByte(chunk[:n], '\n')
			switch {
			case last >= 0:
				for line := range bytes.Lines(chunk[:last+1]) {
					visit(line[:len(line)-1])
				}
				t.offset += int64(last) + 1
			case n < len(chunk): // the file ends within a line, unless n is 0
				t.Cut = n > 0
				return nil
			case len(chunk) < mostTailLine:
				chunk = make([]byte, min(4*len(chunk), mostTailLine))
				continue
			default:
				t.Damaged++
				t.offset += int64(n)
				if t.skipped += int64(n); t.skipped > mostSkippedBytes {
					return nil
				}
			}
			if more = t.offset >= end; more {
				return nil
			}
		}
	})
	return more, err
}

// ReadFrom calls visit with the records from offset on, until visit returns false. offset must come from Tail.Next for
// this file.
func ReadFrom(root *os.Root, name string, offset int64, visit func(r *Record) bool) error {
	file, _, err := regular.OpenIn(root, name)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer file.Close() // read only
	if _, err = scan(file, offset, math.MaxInt64, func(_ int64, r *Record) bool { return visit(r) }); err != nil {
		return fmt.Errorf("read metrics %s: %w", name, err)
	}
	return nil
}

// chunks are reused buffers of tailChunkBytes. Without them, a reader of a thousand files would allocate a buffer at
// each read.
var chunks = sync.Pool{New: func() any { b := make([]byte, tailChunkBytes); return &b }}

// scanned is the result of scan.
type scanned struct {
	next    int64 // end of the last line that was read
	damaged int   // number of complete lines that are not records
	skipped int64 // sum of the sizes of lines that are too long for a record, in bytes
	more    bool  // scan stopped before the end of the file
	cut     bool  // the file does not end with a line "]"
}

// scan calls visit with the records from offset on. It stops when visit returns false, or after the first chunk that
// ends beyond the offset end. The offset end limits the time that is spent on lines that are not records. scan ignores
// text after the last line break, because a Writer may still be writing this line.
func scan(file io.ReaderAt, offset, end int64, visit func(at int64, r *Record) bool) (s scanned, _ error) {
	buffer := chunks.Get().(*[]byte)
	defer chunks.Put(buffer)
	chunk := *buffer
	var record Record
	s.next = offset
	for {
		n, err := file.ReadAt(chunk, s.next)
		if err != nil && err != io.EOF {
			return s, err
		}
		begin, text, closed := s.next, chunk[:n], false
		for at := s.next; ; {
			length := bytes.IndexByte(text, '\n')
			if length < 0 {
				break
			}
			line, from := bytes.TrimSuffix(text[:length], []byte(",")), at
			at, text = at+int64(length)+1, text[length+1:]
			closed = string(line) == "]"
			switch {
			case len(line) == 0, closed, string(line) == "[":
				// This is the end of the previous line or a bracket. The next append overwrites the closing bracket.
			case record.parse(line) || json.Unmarshal(line, &record) == nil:
				s.next = from + int64(len(line)) // without the comma, which the next append writes
				if !visit(from, &record) {
					s.more = true
					return s, nil
				}
			default:
				s.damaged++
				s.next = at
			}
		}
		switch {
		case n < len(chunk):
			s.cut = !closed || len(text) > 0
			return s, nil
		case s.next == begin: // the line is too long for a record: skip it in parts
			s.damaged++
			s.next += int64(n)
			s.skipped += int64(n)
		}
		if s.next >= end || s.skipped > mostSkippedBytes {
			s.more = true
			return s, nil
		}
	}
}
