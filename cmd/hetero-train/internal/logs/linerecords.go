package logs

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
)

// LineRecords converts lines of text to JSON objects. It does not change lines that are already objects.
type LineRecords struct {
	Log  *slog.Logger // logger for lines of text; it must not write to this LineRecords
	Pass io.Writer    // receiver of lines that are objects; nil: such lines are treated as text

	mu   sync.Mutex
	rest []byte // incomplete last line
}

// Write implements [io.Writer]. It never fails, and drops lines that cannot be written.
func (l *LineRecords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			return len(b), nil
		}
		line := bytes.TrimSpace(l.rest[:end])
		switch {
		case l.Pass != nil && len(line) > 0 && line[0] == '{' && json.Valid(line):
			l.Pass.Write(append(line, '\n'))
		case len(line) > 0:
			l.Log.Info(string(line))
		}
		l.rest = l.rest[end+1:]
	}
}

// Flush writes an incomplete last line.
func (l *LineRecords) Flush() {
	if len(l.rest) > 0 {
		l.Write([]byte("\n"))
	}
}
