package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/profiler/spool"
)

const (
	// flushEvery is half a second, so that less than a second of records is lost in a kill, even if a flush is late.
	flushEvery = 500 * time.Millisecond

	// pageBytes is the largest size of a write, unless a single record is longer. The kernel completes a write within
	// a page even if the process is killed. The array therefore always has its closing bracket.
	pageBytes = 4096

	// maxPendingBytes is the size of each of the two buffers for records that a full disk does not accept.
	maxPendingBytes = 4 << 20

	opening = "["
	closing = "\n]\n"
)

// Options configures a Writer.
type Options struct {
	// Fresh means that an existing file belongs to another run. Open then renames it to path.1, path.2, … and creates
	// a new file.
	Fresh bool

	Queue *spool.Queue // performs the regular writes and SyncSoon; nil: a goroutine of the Writer does

	// OnFault is called when writing starts to fail, and with nil when it works again. It is called once for each
	// change, regardless of the number of attempts. It is called from a goroutine of the Writer, or from Flush or Sync.
	// It may be nil.
	OnFault func(error)
}

// Writer appends records to the file of a rank. Only one goroutine may call Append. All other methods are safe for
// concurrent use.
type Writer struct {
	path string

	spool *spool.Spool // buffers records, each preceded by a comma and a line break; Spool.Hold guards the fields below
	dir   *os.Root
	file  metricFile
	end   int64  // offset of the line break before the closing bracket
	empty bool   // the file contains no record, so no comma precedes the next one
	page  []byte // buffer of one write

	size     atomic.Int64 // size of the file in bytes
	progress func()       // called after each portion that Thin has written; nil: no call
}

// metricFile is an *os.File except in tests.
type metricFile interface {
	WriteAt(p []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Repair describes the faults that Open found and repaired.
type Repair struct {
	Records  int64  // number of records in the file after Open
	Damaged  int    // number of removed lines that were not records
	Repaired bool   // the array was not closed, or contained damaged lines
	SetAside string // new name of a file in another layout; "" if there was none
	Earlier  string // new name of an earlier run's file (Options.Fresh); not a fault, so String does not mention it
}

// String returns a description of the faults, or "" if there were none.
func (r Repair) String() string {
	switch {
	case r.SetAside != "":
		return fmt.Sprintf(
			"the layout of the file differs from the layout that this program writes, so the file was renamed to %s",
			r.SetAside)
	case r.Repaired:
		return fmt.Sprintf("%d records kept, %d damaged lines removed", r.Records, r.Damaged)
	}
	return ""
}

// Open opens or creates the file at path, and repairs it if necessary. The folder must exist. Only one Writer may
// have a file open, so the caller must hold the lock of the run.
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
	w.spool = spool.Start(spool.Options{Every: flushEvery, MostBytes: maxPendingBytes, Queue: options.Queue, File: path,
		OnFault: options.OnFault, Write: w.write, Sync: w.sync, Close: w.closeFiles})
	return w, repair, nil
}

// Append adds a record. It only copies the record to memory. A background goroutine writes it to the file. A time or a
// count below 0 is a measurement error. Append stores it as 0, because readers would otherwise refuse the whole record.
func (w *Writer) Append(record *Record) {
	record = record.atLeastZero()
	w.spool.Add(func(records []byte) []byte { return record.appendJSON(append(records, ",\n"...)) })
}

// Dropped returns the number of records that were lost because writes to the disk failed for too long.
func (w *Writer) Dropped() int64 { return w.spool.Dropped() }

// Flush writes all records to the file. If it fails, the records are kept, and the next Flush writes them.
func (w *Writer) Flush() error { return w.spool.Flush() }

// Sync calls Flush and then waits until the records are on disk.
func (w *Writer) Sync() error { return w.spool.Sync() }

// SyncSoon schedules a Sync. It does not wait.
func (w *Writer) SyncSoon() { w.spool.SyncSoon() }

// Close writes all records and closes the file. A second Close does nothing.
func (w *Writer) Close() error { return w.spool.Close() }

func (w *Writer) sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync metrics %s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) closeFiles() error { return errors.Join(w.file.Close(), w.dir.Close()) }

// write writes records page by page. If it fails, the array ends after the written records, and left contains the
// records that were not written.
func (w *Writer) write(rest []byte) (left []byte, err error) {
	for len(rest) > 0 {
		records := wholeRecords(rest, pageBytes-len(closing))
		w.page = append(append(w.page[:0], records...), closing...)
		text := w.page
		if w.empty {
			text = text[1:] // no comma before the first record
		}
		if _, err := w.file.WriteAt(text, w.end); err != nil {
			_, closeErr := w.file.WriteAt([]byte(closing), w.end)
			err = errors.Join(err, closeErr, w.file.Truncate(w.end+int64(len(closing))))
			return rest, fmt.Errorf("write metrics %s: %w", w.path, err)
		}
		w.end += int64(len(text) - len(closing))
		w.size.Store(w.end + int64(len(closing)))
		w.empty = false
		rest = rest[len(records):]
	}
	return nil, nil
}

// wholeRecords returns the longest prefix of b that ends with a record and has at most limit bytes. It contains at
// least one record.
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
