package logs

import (
	"io"
	"log/slog"
	"sync"
)

// File writes a run's log file. If the disk is full, lines are lost: File reports the failure once on the screen, and
// the number of lost lines once writing works again. The run continues without its log.
type File struct {
	File   io.Writer
	Screen *slog.Logger // writes to the screen only, not to the file

	mu   sync.Mutex
	lost int64 // lines since the file failed
	torn bool  // the last line is incomplete
}

// Write implements io.Writer; it never fails.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := line
	if f.torn {
		text = append([]byte{'\n'}, line...)
	}
	n, err := f.File.Write(text)
	if err != nil {
		f.torn = n > 0 || f.torn
		if f.lost++; f.lost == 1 {
			f.Screen.Warn("the log file cannot be written; training continues, and log lines appear only on the screen", "error", err)
		}
		return len(line), nil
	}
	f.torn = false
	if f.lost > 0 {
		f.Screen.Info("the log file can be written again", "lost", f.lost)
		f.lost = 0
	}
	return len(line), nil
}
