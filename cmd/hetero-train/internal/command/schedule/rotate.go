package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// rotated is the name of the file with the older changes of a log. It is in the folder of the log, even if path is
// a symbolic link to the log.
func rotated(path string) string { return target(path) + ".1" }

// target is the file that a path names.
func target(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// mostLog is the size in bytes from which a log is rotated: about 40,000 changes, a month of the usual limit. A larger
// log takes longer to read in each command.
const mostLog = 16 << 20

// rotate copies the log to FILE.1, which it replaces, and leaves only the changes of the last hour in the log, because
// they count for the limit. Both files get the mode and the owner of the log. rotate does nothing and returns false if
// the log is smaller than most, in bytes, or if less than half of it is older than an hour: the next runs would replace
// FILE.1 again, and lose changes. At each moment, FILE or FILE.1 has each change of the log.
func (c *changes) rotate(ctx context.Context, most int64, now time.Time) (done bool, err error) {
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
	if len(text) > len(old)/2 {
		return false, nil
	}
	lock, err := lockLog(ctx, rotated(c.path)) // advise undo may write to it
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	for _, f := range []struct {
		path string
		text []byte
	}{{rotated(c.path), old}, {target(c.path), text}} {
		if err := replace(f.path, f.text, info); err != nil {
			return false, exit.With(exit.FolderCode(err),
				fmt.Errorf("schedule advise: log of changes: move the older changes of %s to %s: %w; run schedule advise as the owner of the log, in a folder in which this user can create files, or select another log with --log FILE",
					c.path, rotated(c.path), err))
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

// replace writes a file with the mode and the owner of another one, and waits until it is on disk. A reader sees the
// old or the new contents.
func replace(path string, text []byte, like os.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // only the owner may read it
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = platform.KeepOwner(f, like)
	if err == nil {
		err = f.Chmod(like.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// older returns the changes of FILE.1 that the log no longer has, and that undo has not reverted, for some jobs of a
// cluster, or for all. It returns none if there is no FILE.1.
func (c *changes) older(system, on string, jobs []string) ([]*logged, error) {
	old, err := readChanges(rotated(c.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type key struct {
		job  string
		time int64
	}
	both := map[key]bool{}
	for _, l := range c.all {
		both[key{l.Change.Job, l.Time.UnixNano()}] = true
	}
	list, _ := old.open(system, on)
	return slices.DeleteFunc(list, func(l *logged) bool {
		return both[key{l.Change.Job, l.Time.UnixNano()}] || len(jobs) > 0 && !slices.Contains(jobs, l.Change.Job)
	}), nil
}
