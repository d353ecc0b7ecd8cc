package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// rotated is the name of the file that has the older changes of a log.
func rotated(path string) string { return path + ".1" }

// mostLog is the size in bytes from which a log is rotated: about 40,000 changes, a month of the usual limit. A larger
// log takes longer to read in each command.
const mostLog = 16 << 20

// rotate copies the log to FILE.1, which it replaces, and leaves only the changes of the last hour in the log, because
// they count for the limit. It does nothing and returns false if the log is smaller than most, in bytes. At each
// moment, FILE or FILE.1 has each change of the log.
func (c *changes) rotate(most int64, now time.Time) (bool, error) {
	info, err := c.file.Stat()
	if err != nil {
		return false, logFault(err)
	}
	if info.Size() < most {
		return false, nil
	}
	old, err := c.read()
	if err != nil {
		return false, logFault(err)
	}
	var kept []*logged
	var text []byte
	for _, l := range c.all {
		if now.Sub(l.Time) >= time.Hour {
			continue
		}
		copied := *l
		copied.ID = len(kept) + 1
		kept = append(kept, &copied)
		lines := []event{copied.event}
		if copied.last != begins {
			lines = append(lines, event{ID: copied.ID, Time: now, Event: copied.last,
				Note: "rotated: the older events are in " + rotated(c.path)})
		}
		for _, e := range lines {
			line, err := json.Marshal(e)
			if err != nil {
				return false, logFault(err)
			}
			text = append(append(text, line...), '\n')
		}
	}
	for _, f := range []struct {
		path string
		text []byte
	}{{rotated(c.path), old}, {c.path, text}} {
		if err := replace(f.path, f.text); err != nil {
			return false, exit.With(exit.IO, fmt.Errorf("schedule advise: log of changes: rotate: %w", err))
		}
	}
	err = c.file.Close()
	c.all, c.file = kept, nil
	if err != nil {
		return false, logFault(err)
	}
	file, err := os.OpenFile(c.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, logFault(err)
	}
	c.file = file
	return true, nil
}

// replace writes a file and waits until it is on disk. A reader sees the old or the new contents.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // only the owner may read it
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
