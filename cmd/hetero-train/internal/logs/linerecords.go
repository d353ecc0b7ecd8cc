package logs

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
)

// LineRecords turns text into JSON objects, one for each line, so that a stream of records holds nothing else. Lines that are objects already pass
// unchanged.
type LineRecords struct {
	Log  *slog.Logger // writes a line of text as a record; its own output does not come here
	Pass io.Writer    // takes lines that are objects; nil: they are text like others

	mu   sync.Mutex
	rest []byte // a line that is not complete
}

// Write implements io.Writer. It never fails: output that cannot be written is lost.
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

// Flush writes a last line that lacks its end.
func (l *LineRecords) Flush() {
	if len(l.rest) > 0 {
		l.Write([]byte("\n"))
	}
}
