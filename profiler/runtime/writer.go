package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/profiler/spool"
)

const (
	// flushEvery is half a second, so that a kill loses less than a second even where the flush comes late.
	flushEvery = 500 * time.Millisecond

	// pageBytes bounds a write, unless one record is longer: the kernel finishes a write within a page even
	// when the process is being killed, so that the array is closed at any time.
	pageBytes = 4096

	// maxPendingBytes bounds each of the two buffers for records that a full disk does not take.
	maxPendingBytes = 4 << 20

	opening = "["
	closing = "\n]\n"
)

// Options of a Writer.
type Options struct {
	// Fresh renames a file that holds anything, the records of another run, to path.1, path.2, … and begins a new one.
	Fresh bool

	// OnFault is called, from a goroutine of the Writer or from within Flush and Sync, when writing begins to fail, and again
	// with nil when it works again: once each, however often it is tried meanwhile. May be nil.
	OnFault func(error)
}

// Writer appends records to a rank's file. Append may be called from one goroutine, all else from any.
type Writer struct {
	path string

	spool *spool.Spool // of records, each preceded by a comma and a line break; its Hold guards what follows
	dir   *os.Root
	file  metricFile
	end   int64  // where the closing bracket's line break is
	empty bool   // no record in the file: the next one has no comma
	page  []byte // one write
}

// metricFile is an *os.File in programs.
type metricFile interface {
	WriteAt(p []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Repair tells what Open found and did.
type Repair struct {
	Records  int64  // now in the file
	Damaged  int    // lines that were not records and were removed
	Repaired bool   // the array was not closed, or had damaged lines
	SetAside string // a file in another layout, renamed to this
	Earlier  string // another run's file, renamed to this because of Options.Fresh; no fault, so String is silent about it
}

// String says what was wrong with the file, "" if nothing was.
func (r Repair) String() string {
	switch {
	case r.SetAside != "":
		return fmt.Sprintf("it has another layout than this program writes: renamed to %s", r.SetAside)
	case r.Repaired:
		return fmt.Sprintf("%d records kept, %d damaged lines removed", r.Records, r.Damaged)
	}
	return ""
}

// Open opens or creates the file at path, in a folder that exists, and repairs it if need be. Only one Writer
// may have a file open: the caller holds the run's lock.
func Open(path string, options Options) (*Writer, Repair, error) {
	w := &Writer{path: path}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, Repair{}, fmt.Errorf("open metrics: %w", err)
	}
	w.dir = dir
	repair, err := w.openFile(options.Fresh)
	if err != nil {
		dir.Close()
		return nil, repair, fmt.Errorf("open metrics %s: %w", path, err)
	}
	w.spool = spool.Start(spool.Options{Every: flushEvery, MostBytes: maxPendingBytes, OnFault: options.OnFault, Write: w.write, Sync: w.sync, Close: w.closeFiles})
	return w, repair, nil
}

// Append adds a record. It only copies it to memory; a background goroutine writes it out.
func (w *Writer) Append(record *Record) {
	w.spool.Add(func(records []byte) []byte { return record.appendJSON(append(records, ",\n"...)) })
}

// Dropped is the number of records lost because the disk took none for too long.
func (w *Writer) Dropped() int64 { return w.spool.Dropped() }

// Flush hands all records to the system. After an error they are kept and the next Flush tries again.
func (w *Writer) Flush() error { return w.spool.Flush() }

// Sync is Flush, then waits until the disk has the records.
func (w *Writer) Sync() error { return w.spool.Sync() }

// Close writes out all records and closes the file. A second Close does nothing.
func (w *Writer) Close() error { return w.spool.Close() }

func (w *Writer) sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync metrics %s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) closeFiles() error { return errors.Join(w.file.Close(), w.dir.Close()) }

// write writes records, page by page. After an error the array is closed behind those that were written; the rest is left.
func (w *Writer) write(rest []byte) (left []byte, err error) {
	for len(rest) > 0 {
		records := wholeRecords(rest, pageBytes-len(closing))
		w.page = append(append(w.page[:0], records...), closing...)
		text := w.page
		if w.empty {
			text = text[1:] // the comma before the first record
		}
		if _, err := w.file.WriteAt(text, w.end); err != nil {
			_, closeErr := w.file.WriteAt([]byte(closing), w.end)
			err = errors.Join(err, closeErr, w.file.Truncate(w.end+int64(len(closing))))
			return rest, fmt.Errorf("write metrics %s: %w", w.path, err)
		}
		w.end += int64(len(text) - len(closing))
		w.empty = false
		rest = rest[len(records):]
	}
	return nil, nil
}

// wholeRecords is the longest part of b that ends with a record and has at most limit bytes, at least one record.
func wholeRecords(b []byte, limit int) []byte {
	if len(b) <= limit {
		return b
	}
	separator := []byte(",\n")
	if at := bytes.LastIndex(b[:min(len(b), limit+len(separator))], separator); at > 0 {
		return b[:at]
	}
	if at := bytes.Index(b[1:], separator); at >= 0 {
		return b[:1+at]
	}
	return b
}
