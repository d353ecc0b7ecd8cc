package logs

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/profiler/spool"
)

// File is the log file of a run. While the disk is full, File drops lines. It also drops lines while the queue Disk is
// full because the disk does not answer. File reports the failure once on the screen. When writing works again, it
// reports the number of lost lines. In the meantime, the run continues without its log.
type File struct {
	File   io.Writer
	Path   string
	Screen *slog.Logger // logger to the screen only, not to the file
	Disk   *spool.Queue // queue that writes the lines, so that Write does not wait; nil: Write writes to the disk

	refused atomic.Int64 // number of lines lost because Disk was full

	mu   sync.Mutex // necessary without Disk, because several goroutines write
	lost int64      // number of lines lost since the failure
	torn bool       // true if the last line of the file is incomplete
}

// Write implements io.Writer; it never fails.
func (f *File) Write(line []byte) (int, error) {
	if f.Disk.Full() { // drop the line; rank 0 waits for the disk elsewhere, but other ranks continue to train
		f.refused.Add(1)
		return len(line), nil
	}
	kept := bytes.Clone(line)
	f.Disk.Do(f.Path, len(kept), func() { f.write(kept) })
	return len(line), nil
}

func (f *File) write(line []byte) {
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
			f.Screen.Warn("the log file cannot be written; training continues, and log lines appear only on the screen",
				"error", err)
		}
		return
	}
	f.torn = false
	if lost := f.lost + f.refused.Swap(0); lost > 0 {
		f.Screen.Info("the log file can be written again", "lost", lost)
		f.lost = 0
	}
}
