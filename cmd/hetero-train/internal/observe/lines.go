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
	"os"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// StepLines is a file of one JSON object a line, each of a step. Lines that a full disk does not take are lost: that is told once, and how many there were
// once it takes lines again. Training does not depend on it.
type StepLines struct {
	what string // "norms of parameters"
	path string
	log  *slog.Logger
	keep int64        // the last step whose lines stay when the file is opened
	file appendedFile // nil: to be opened

	failed bool  // the last write or sync, and it was said
	lost   int64 // lines since the file failed
	torn   bool  // the last line lacks its end
}

// appendedFile is an *os.File in programs.
type appendedFile interface {
	io.WriteCloser
	Sync() error
}

// OpenLines opens a file behind the lines of the first steps; later ones are of steps that come again.
func OpenLines(what, path string, steps int64, log *slog.Logger) (*StepLines, error) {
	l := &StepLines{what: what, path: path, log: log, keep: steps}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return l, nil
}

// open drops the lines of steps that come again, and damaged ones. It reads the file line by line, since that of a long run is larger than the memory.
func (l *StepLines) open() error {
	whole := true
	err := regular.EachLine(l.path, func(line []byte) error {
		whole = whole && l.keeps(line)
		return nil
	})
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if missing || !whole {
		if err := experiment.Replace(l.path, l.copyKept); err != nil {
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

func (l *StepLines) copyKept(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	err := regular.EachLine(l.path, func(line []byte) error {
		if !l.keeps(line) {
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

// Add writes a line.
func (l *StepLines) Add(v any) {
	text, err := json.Marshal(v)
	if err == nil && l.file == nil {
		err = l.open()
	}
	if err == nil {
		if text = append(text, '\n'); l.torn {
			text = append([]byte{'\n'}, text...)
		}
		var n int
		n, err = l.file.Write(text)
		l.torn = err != nil && (n > 0 || l.torn)
	}
	if err != nil {
		l.lost++
	}
	l.tell(err)
}

// tell says when writing begins to fail, and when it works again.
func (l *StepLines) tell(err error) {
	switch {
	case err != nil && !l.failed:
		l.log.Warn(l.what+" are not written: training continues", "file", l.path, "error", err)
	case err == nil && l.failed:
		l.log.Info(l.what+" are written again", "file", l.path, "lost", l.lost)
		l.lost = 0
	}
	l.failed = err != nil
}

// RolledBack drops the lines of steps that come again. What fails is tried again with the next line.
func (l *StepLines) RolledBack(step int64) {
	err := l.Close()
	l.keep = step
	l.tellFault(errors.Join(err, l.open()))
}

// sync waits until the disk has the lines.
func (l *StepLines) sync() {
	if l.file != nil {
		l.tellFault(l.file.Sync())
	}
}

// tellFault tells of an operation that writes no line: its success does not prove that the disk takes lines again.
func (l *StepLines) tellFault(err error) {
	if err != nil {
		l.tell(err)
	}
}

// Close writes what is queued and closes the file.
func (l *StepLines) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
