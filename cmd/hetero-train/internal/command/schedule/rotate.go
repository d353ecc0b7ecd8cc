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

// rotated returns the path of the file with the older changes of a log. The file is in the folder of the log, even if
// path is a symbolic link to the log.
func rotated(path string) string { return target(path) + ".1" }

// target returns the path of the file that path names, without symbolic links.
func target(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// mostLog is the size in bytes from which a log is rotated. It corresponds to about 40,000 changes, a month at the
// default limit. Every command reads the log, which takes longer for a larger log.
const mostLog = 16 << 20

// rotate replaces FILE.1 by a copy of the log FILE. In the log it leaves only the changes of the last hour, because
// they count for the limit. Both files get the mode and the owner of the log. rotate does nothing and returns false if
// the log is smaller than the given number of bytes. It also does nothing if less than half of the log is older than an
// hour. Otherwise the next runs would soon replace FILE.1 again and lose changes. At each moment, FILE or FILE.1
// contains each change of the log.
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
	lock, err := lockLog(ctx, rotated(c.path)) // advise undo may write to FILE.1
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

// replace replaces a file and waits until the new contents are on disk. The file gets the mode and the owner of the
// file like. A reader sees either the old or the new contents.
func replace(path string, text []byte, like os.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // until chmod, only the owner may read it
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

// older returns the changes of a cluster in FILE.1 that the log no longer contains and that undo has not reverted. If
// jobs is not empty, older returns only the changes of these jobs. Without a file FILE.1, it returns none.
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
