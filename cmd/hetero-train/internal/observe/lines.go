package observe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

// StepLines is a file of JSON lines, each of which belongs to a step. While the disk is full, StepLines loses lines. It
// reports the failure once, and the number of lost lines when writing works again. Training does not wait for the disk:
// all methods except Close only add a job to the queue of the run.
type StepLines struct {
	what string // name of the content in messages, such as "norms of parameters"
	path string
	log  *slog.Logger
	disk *spool.Queue // queue that performs all operations; nil: the methods perform them

	// Only jobs of disk use the fields below.
	keep int64        // last step whose lines open keeps
	size int64        // size of the file, bytes
	most int64        // maximum size, bytes; 0: no limit
	file appendedFile // nil until the file is open

	failed bool  // true if the last write or sync has failed; this was reported
	lost   int64 // number of lines lost since the failure
	torn   bool  // true if the last line of the file is incomplete
}

// appendedFile is implemented by *os.File, and by the files of tests.
type appendedFile interface {
	io.WriteCloser
	Sync() error
}

// OpenLines opens a file. It keeps the lines of steps up to the step steps, and removes later lines, because the run
// will repeat their steps.
func OpenLines(disk *spool.Queue, what, path string, steps int64, log *slog.Logger) (*StepLines, error) {
	l := &StepLines{what: what, path: path, log: log, disk: disk, keep: steps}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return l, nil
}

// open opens the file, and removes damaged lines and the lines of steps after keep. It reads line by line, because the
// file of a long run may not fit into memory.
func (l *StepLines) open() error {
	whole := true
	l.size = 0
	err := regular.EachLine(l.path, func(line []byte) error {
		if !l.keeps(line) {
			whole = false
			return nil
		}
		l.size += int64(len(line))
		return nil
	})
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if missing || !whole {
		if err := experiment.Replace(l.path, func(w io.Writer) error { return l.copy(w, l.keeps) }); err != nil {
			return err
		}
	}
	file, err := regular.Write(l.path, os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	l.file, l.torn = file, false
	return nil
}

// copy writes the lines for which keep returns true.
func (l *StepLines) copy(w io.Writer, keep func(line []byte) bool) error {
	out := bufio.NewWriterSize(w, 1<<16)
	err := regular.EachLine(l.path, func(line []byte) error {
		if !keep(line) {
			return nil
		}
		_, err := out.Write(line)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return out.Flush()
}

func (l *StepLines) keeps(line []byte) bool {
	var d struct{ Step int64 }
	return bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &d) == nil && d.Step <= l.keep
}

// Add appends v as a line, and returns the number of bytes of the line.
func (l *StepLines) Add(v any) int {
	text, err := json.Marshal(v)
	l.disk.Do(l.path, len(text), func() { l.write(text, err) })
	return len(text) + 1
}

// write writes a line. The parameter err is the error of encoding the line; if it is not nil, the line is lost.
func (l *StepLines) write(text []byte, err error) {
	if err == nil && l.file == nil {
		err = l.open()
	}
	if err == nil {
		if text = append(text, '\n'); l.torn {
			text = append([]byte{'\n'}, text...)
		}
		var n int
		n, err = l.file.Write(text)
		l.size += int64(n)
		l.torn = err != nil && (n > 0 || l.torn)
	}
	if err != nil {
		l.lost++
	}
	l.logError(err)
	if err == nil && l.most > 0 && l.size > l.most {
		l.logFault(l.thin())
	}
}

// Limit sets the maximum size of the file in bytes. 0 means no limit.
func (l *StepLines) Limit(bytes int64) *StepLines {
	l.disk.Do(l.path, 0, func() { l.most = bytes })
	return l
}

// thin removes lines of older steps; see [runtime.Thinning]. If possible, it keeps all evaluations and changes of
// shares.
func (l *StepLines) thin() error {
	most := l.most
	err := l.thinExcept(func(line steppedLine) bool { return line.first() || line.Evaluation != nil || line.Changed })
	if err == nil && l.size > most*3/4 { // the run has very many evaluations or changes of shares
		err = l.thinExcept(steppedLine.first)
	}
	// If many lines always stay, raise the limit, so that the file is not copied again for each further line.
	l.most = max(most, l.size+most/4)
	return err
}

// steppedLine contains the fields of a line that determine whether the line stays.
type steppedLine struct {
	Step                      int64
	Start, Length, Evaluation json.RawMessage
	Changed                   bool
}

// first reports whether a line contains the start or the length of a run. Readers always need these lines; for example,
// they cannot assign steps to ranks without the start of the process.
func (l steppedLine) first() bool { return l.Start != nil || l.Length != nil }

// thinExcept removes lines of older steps, but keeps those for which always returns true.
func (l *StepLines) thinExcept(always func(steppedLine) bool) error {
	parse := func(line []byte) (v steppedLine, ok bool) {
		return v, bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &v) == nil
	}
	var steps []int64
	err := regular.EachLine(l.path, func(line []byte) error {
		if v, ok := parse(line); ok && !always(v) {
			steps = append(steps, v.Step)
		}
		return nil
	})
	if err != nil {
		return err
	}
	keep := runtime.ThinningOf(steps).Keep()
	err = experiment.Replace(l.path, func(w io.Writer) error {
		return l.copy(w, func(line []byte) bool {
			v, ok := parse(line)
			return ok && (always(v) || keep(v.Step))
		})
	})
	if err != nil {
		err = fmt.Errorf("thin out %s: %w", l.path, err)
	}
	l.keep = math.MaxInt64
	return errors.Join(err, l.closeFile(), l.open())
}

// logError reports the first failure of writing, and the first success after it.
func (l *StepLines) logError(err error) {
	switch {
	case err != nil && !l.failed:
		l.log.Warn(l.what+" cannot be written; training continues", "file", l.path, "error", err)
	case err == nil && l.failed:
		l.log.Info(l.what+" can be written again", "file", l.path, "lost", l.lost)
		l.lost = 0
	}
	l.failed = err != nil
}

// RolledBack removes the lines of repeated steps. If this fails, Add tries again before the next line.
func (l *StepLines) RolledBack(step int64) {
	l.disk.Do(l.path, 0, func() {
		err := l.closeFile()
		l.keep = step
		l.logFault(errors.Join(err, l.open()))
	})
}

// sync flushes the lines to the disk.
func (l *StepLines) sync() {
	l.disk.Do(l.path, 0, func() {
		if l.file != nil {
			l.logFault(l.file.Sync())
		}
	})
}

// logFault reports the failure of an operation that writes no line. It ignores success, which does not prove that the
// disk accepts lines again.
func (l *StepLines) logFault(err error) {
	if err != nil {
		l.logError(err)
	}
}

// Close waits until all lines are written, and closes the file.
func (l *StepLines) Close() (err error) {
	closed := make(chan struct{})
	l.disk.Do(l.path, 0, func() {
		err = l.closeFile()
		close(closed)
	})
	<-closed
	return err
}

func (l *StepLines) closeFile() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
