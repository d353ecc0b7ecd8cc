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
	// flushEvery is half a second, so that a kill loses less than a second even if the flush is late.
	flushEvery = 500 * time.Millisecond

	// pageBytes limits a write, unless one record is longer. The kernel completes a write within a page even if the
	// process is killed, so that the array is closed at any time.
	pageBytes = 4096

	// maxPendingBytes is the size of each of the two buffers for records that a full disk does not accept.
	maxPendingBytes = 4 << 20

	opening = "["
	closing = "\n]\n"
)

// Options configure a Writer.
type Options struct {
	// Fresh renames an existing file with contents, which are another run's records, to path.1, path.2, … and starts a
	// new one.
	Fresh bool

	// OnFault is called when writing starts to fail, and with nil when it works again: once each, regardless of the
	// number of tries. A goroutine of the Writer, Flush or Sync calls it. May be nil.
	OnFault func(error)
}

// Writer appends records to a rank's file. One goroutine may call Append; any goroutine may call the other methods.
type Writer struct {
	path string

	spool *spool.Spool // of records, each preceded by a comma and a line break; its Hold guards the fields below
	dir   *os.Root
	file  metricFile
	end   int64  // offset of the line break before the closing bracket
	empty bool   // no record in the file: the next one has no comma
	page  []byte // one write
}

// metricFile is an *os.File except in tests.
type metricFile interface {
	WriteAt(p []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Repair describes the state that Open found, and its repairs.
type Repair struct {
	Records  int64  // now in the file
	Damaged  int    // lines that were not records and were removed
	Repaired bool   // the array was not closed, or had damaged lines
	SetAside string // new name of a file in another layout
	Earlier  string // new name of another run's file, because of Options.Fresh; no fault, so String ignores it
}

// String returns the fault of the file, "" if there was none.
func (r Repair) String() string {
	switch {
	case r.SetAside != "":
		return fmt.Sprintf("the file has another layout than this program writes, and was renamed %s", r.SetAside)
	case r.Repaired:
		return fmt.Sprintf("%d records kept, %d damaged lines removed", r.Records, r.Damaged)
	}
	return ""
}

// Open opens or creates the file at path, in an existing folder, and repairs it if necessary. Only one Writer may have
// a file open: the caller holds the run's lock.
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

// Append adds a record. It only copies the record to memory; a background goroutine writes it.
func (w *Writer) Append(record *Record) {
	w.spool.Add(func(records []byte) []byte { return record.appendJSON(append(records, ",\n"...)) })
}

// Dropped returns the number of records lost because the disk accepted none for too long.
func (w *Writer) Dropped() int64 { return w.spool.Dropped() }

// Flush writes all records to the file. After an error they are kept, and the next Flush tries again.
func (w *Writer) Flush() error { return w.spool.Flush() }

// Sync flushes, then waits until the disk has the records.
func (w *Writer) Sync() error { return w.spool.Sync() }

// Close writes all records and closes the file. A second Close does nothing.
func (w *Writer) Close() error { return w.spool.Close() }

func (w *Writer) sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync metrics %s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) closeFiles() error { return errors.Join(w.file.Close(), w.dir.Close()) }

// write writes records, page by page. After an error the array is closed after the written ones; left are the others.
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

// wholeRecords returns the longest prefix of b that ends with a record and has at most limit bytes, but at least one
// record.
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
