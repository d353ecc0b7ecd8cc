package trace

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/spool"
)

const (
	boardFlushEvery = time.Second
	maxBoardPending = 4 << 20 // bytes
	maxEventBytes   = 64 << 20
	eventFileMark   = "events.out.tfevents."
)

// BoardOptions determines how a Board treats existing files.
type BoardOptions struct {
	Fresh bool  // the files belong to another run: rename their folder to <dir>.1, <dir>.2, …
	Keep  int64 // step from which the run continues: events of later steps are removed

	Queue *spool.Queue // performs the regular writes and SyncSoon; nil: a goroutine of the Board does

	// OnFault is called by a goroutine of the Board when writing starts to fail, and with nil when it works again. It
	// may be nil.
	OnFault func(error)
}

// Board writes the TensorBoard event files of one run. Only one goroutine may call Scalars, Text and Settings. All
// other methods are safe for concurrent use. Only one Board may have a folder open, so the caller must hold the lock
// of the run.
type Board struct {
	dir   string
	event []byte // buffer of an event before it becomes a record

	spool   *spool.Spool // Spool.Hold guards the fields below
	file    boardFile
	name    string
	end     int64 // size of the file in bytes
	cutting bool  // before the next write, the files must be truncated and a new file must be started
	keep    int64 // last step that the truncation keeps
	serial  int
}

// boardFile is an *os.File except in tests.
type boardFile interface {
	WriteAt(p []byte, offset int64) (int, error)
	Sync() error
	Close() error
}

// OpenBoard creates dir if necessary, and starts a new file after the files of the run's earlier processes.
func OpenBoard(dir string, o BoardOptions) (*Board, error) {
	b := &Board{dir: dir}
	if err := b.open(o); err != nil {
		return nil, fmt.Errorf("TensorBoard events in %s: %w", dir, err)
	}
	b.spool = spool.Start(spool.Options{Every: boardFlushEvery, MostBytes: maxBoardPending, Queue: o.Queue, File: dir,
		OnFault: o.OnFault, Write: b.write,
		Sync: func() error { return b.file.Sync() }, Close: func() error { return b.file.Close() }})
	return b, nil
}

func (b *Board) open(o BoardOptions) error {
	names, err := eventFiles(b.dir)
	if err != nil {
		return err
	}
	if o.Fresh && len(names) > 0 {
		if err := moveAside(b.dir); err != nil {
			return err
		}
		names = nil
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return b.begin(names, o.Keep)
}

// eventFiles returns the names of the event files in a folder, oldest first. It returns none if the folder does not
// exist.
func eventFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name, which starts with the time
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), eventFileMark) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func moveAside(dir string) error {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", dir, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(dir, aside)
		} else if err != nil {
			return err
		}
	}
}

// begin removes the events after the step keep from the files of a run, and starts the next file. If it fails, the
// Board keeps its current file.
func (b *Board) begin(names []string, keep int64) error {
	newest := int64(0)
	for _, name := range names {
		if err := cutFile(filepath.Join(b.dir, name), keep); err != nil {
			return err
		}
		seconds, _, _ := strings.Cut(strings.TrimPrefix(name, eventFileMark), ".")
		if t, err := strconv.ParseInt(seconds, 10, 64); err == nil {
			newest = max(newest, t)
		}
	}
	now := time.Now()
	host, err := os.Hostname()
	if err != nil || strings.ContainsAny(host, `/\`) {
		host = "localhost"
	}
	// Readers sort files by name. Names must therefore increase even if the clock is set back.
	next := fmt.Sprintf("%s%010d.%s.%d.%d", eventFileMark, max(now.Unix(), newest+1), host, os.Getpid(), b.serial)
	b.serial++
	file, err := os.OpenFile(filepath.Join(b.dir, next), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	first := appendRecord(nil, versionEvent(now))
	if len(names) > 0 {
		first = appendRecord(first, startEvent(keep+1, now))
	}
	if _, err := file.WriteAt(first, 0); err != nil {
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	b.file, b.name, b.end = file, next, int64(len(first))
	return nil
}

// cutFile truncates an event file before the first event whose step is above keep, or before the first damaged record.
// If the start of the file is damaged, cutFile assumes that the file belongs to another program and leaves it
// unchanged.
func cutFile(path string, keep int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	sound, err := soundUpTo(bufio.NewReader(file), keep)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	info, err := file.Stat()
	if err != nil || sound == 0 || sound == info.Size() {
		return err
	}
	return errors.Join(file.Truncate(sound), file.Sync())
}

// soundUpTo returns the total size of the complete records before the first record whose step is above keep.
func soundUpTo(in io.Reader, keep int64) (bytes int64, err error) {
	var head [12]byte
	var data []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return bytes, atEnd(err)
		}
		n := binary.LittleEndian.Uint64(head[:])
		if masked(head[:8]) != binary.LittleEndian.Uint32(head[8:]) || n > maxEventBytes {
			return bytes, nil
		}
		data = slices.Grow(data[:0], int(n)+4)[:n+4]
		if _, err := io.ReadFull(in, data); err != nil {
			return bytes, atEnd(err)
		}
		if masked(data[:n]) != binary.LittleEndian.Uint32(data[n:]) {
			return bytes, nil
		}
		if step, ok := stepOf(data[:n]); !ok || step > keep {
			return bytes, nil
		}
		bytes += int64(len(head)) + int64(n) + 4
	}
}

// atEnd returns nil if err reports the end of a file, even one within a record, and otherwise err.
func atEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// Scalars adds the values of a step. It only copies them to memory.
func (b *Board) Scalars(step int64, at time.Time, values []Scalar) {
	b.add(func(event []byte) []byte { return appendScalars(event, step, at, values) })
}

// Text adds a Markdown text.
func (b *Board) Text(step int64, at time.Time, tag, markdown string) {
	b.add(func(event []byte) []byte {
		return appendTensor(event, step, at, tag, "text", nil, textTensor(markdown))
	})
}

// Settings adds the settings of the run for TensorBoard's HPARAMS tab. Runs of the same group differ only in their
// seeds.
func (b *Board) Settings(step int64, at time.Time, group string, settings []Setting) {
	b.add(func(event []byte) []byte { return appendSettings(event, step, at, group, settings) })
}

func (b *Board) add(event func([]byte) []byte) {
	b.spool.Add(func(records []byte) []byte {
		b.event = event(b.event[:0])
		return appendRecord(records, b.event)
	})
}

// Dropped returns the number of events that were lost because writes to the disk failed for too long.
func (b *Board) Dropped() int64 { return b.spool.Dropped() }

// Flush writes all events. If it fails, the events are kept, and the next Flush writes them.
func (b *Board) Flush() error { return b.spool.Flush() }

// Sync calls Flush and then waits until the events are on disk.
func (b *Board) Sync() error { return b.spool.Sync() }

// SyncSoon schedules a Sync. It does not wait.
func (b *Board) SyncSoon() { b.spool.SyncSoon() }

// Close writes all events and closes the file. A second Close does nothing.
func (b *Board) Close() error { return b.spool.Close() }

// write writes records. If it fails, the next call writes all of them again at the same offset.
func (b *Board) write(records []byte) (left []byte, err error) {
	if b.cutting {
		if err := b.cut(); err != nil {
			return records, err
		}
	}
	if _, err := b.file.WriteAt(records, b.end); err != nil {
		return records, fmt.Errorf("write TensorBoard events %s: %w", filepath.Join(b.dir, b.name), err)
	}
	b.end += int64(len(records))
	return nil, nil
}

// Restart removes events of steps above keep, because these steps will run again. If it fails, the files are unchanged
// or truncated. Events then wait in memory, and nothing is written until a later Flush has completed the truncation.
func (b *Board) Restart(keep int64) error {
	return b.spool.Hold(func(flush func() error) error {
		b.spool.Change(func(records []byte) []byte { return upToStep(records, keep) })
		if b.cutting {
			keep = min(keep, b.keep)
		}
		b.cutting, b.keep = true, keep
		return flush()
	})
}

// upToStep returns the records before the first record whose step is above keep.
func upToStep(records []byte, keep int64) []byte {
	n, _ := soundUpTo(bytes.NewReader(records), keep) // reading from memory cannot fail
	return records[:n]
}

// cut performs the pending truncation of Restart.
func (b *Board) cut() error {
	names, err := eventFiles(b.dir)
	if err != nil {
		return err
	}
	current := filepath.Join(b.dir, b.name)
	if info, err := os.Stat(current); err == nil && info.Size() > b.end { // partial records of a full disk
		if err := os.Truncate(current, b.end); err != nil {
			return err
		}
	}
	old := b.file
	if err := b.begin(names, b.keep); err != nil {
		return fmt.Errorf("remove TensorBoard events after step %[2]d in %[1]s: %[3]w", b.dir, b.keep, err)
	}
	b.cutting = false
	return old.Close()
}
