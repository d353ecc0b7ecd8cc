package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// The events of a change, in their order. A process that ends between begins and applied may have made the change, so
// undo reverts it too.
const (
	begins  = "begins"  // the change follows
	applied = "applied" // the queue system accepted the change
	failed  = "failed"  // the queue system refused the change, or its second step
	undone  = "undone"  // advise undo reverted the change
	over    = "over"    // nothing is left to revert
)

// event is a line of the log of changes.
type event struct {
	ID     int              `json:"id"` // of the change
	Time   time.Time        `json:"time"`
	Event  string           `json:"event"`
	System string           `json:"queue_system,omitempty"` // slurm or kubernetes; of begins, like the next four
	Where  string           `json:"context,omitempty"`      // of Kubernetes
	Policy string           `json:"policy,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Change *jobqueue.Change `json:"change,omitempty"`
	Note   string           `json:"note,omitempty"` // error of failed; what undo did
}

// changes is the log of the changes that advise made: a file of JSON lines to which events are appended. Its lock keeps
// two processes from exceeding the limit together.
type changes struct {
	path string
	lock *filelock.Lock
	file *os.File
	all  []*logged // in the order of time
}

// logged is a change with its last event.
type logged struct {
	event        // begins
	last  string // the last event
}

// addLog adds the flag for the log of changes.
func addLog(flags *pflag.FlagSet, to *string) {
	flags.StringVar(to, "log", "", "log of all changes, a `FILE` of JSON lines; default: hetero-train/advise.jsonl in $XDG_STATE_HOME, or in ~/.local/state")
}

// logPath returns the path of the log of changes.
func logPath(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the standard ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return "", exit.Usagef("schedule advise: there is no folder for the log of changes: %w; want --log FILE",
				err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	state = filepath.Join(state, "hetero-train")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", exit.With(exit.IO,
			fmt.Errorf("schedule advise: folder of the log of changes: %w; want --log FILE", err))
	}
	return filepath.Join(state, "advise.jsonl"), nil
}

// openChanges reads and locks the log of changes. It creates the file if necessary.
func openChanges(ctx context.Context, flag string) (*changes, error) {
	path, err := logPath(flag)
	if err != nil {
		return nil, err
	}
	wrong := func(code int, err error) error {
		return exit.With(code, fmt.Errorf("schedule advise: log of changes: %w", err))
	}
	patience, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := &changes{path: path}
	if c.lock, err = filelock.Acquire(patience, path+".lock"); err != nil {
		return nil, wrong(exit.IO, err)
	}
	text, err := c.read()
	if err != nil {
		return nil, errors.Join(wrong(exit.IO, err), c.close())
	}
	if c.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, errors.Join(wrong(exit.IO, err), c.close())
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole < len(text) { // a process ended while it wrote the last line; the change of this line was not made
		if err := c.file.Truncate(int64(whole)); err != nil {
			return nil, errors.Join(wrong(exit.IO, err), c.close())
		}
	}
	if err := c.parse(text[:whole]); err != nil {
		return nil, errors.Join(wrong(exit.Data, err), c.close())
	}
	return c, nil
}

// read returns the contents of the log, which may not exist yet.
func (c *changes) read() ([]byte, error) {
	f, _, err := regular.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (c *changes) parse(text []byte) error {
	for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		if len(line) == 0 && len(text) == 0 {
			return nil
		}
		var e event
		err := json.Unmarshal(line, &e)
		switch {
		case err != nil:
		case e.Event == begins && e.ID == len(c.all)+1 && e.Change != nil && e.Change.Job != "":
			c.all = append(c.all, &logged{e, begins})
		case e.Event != begins && e.ID >= 1 && e.ID <= len(c.all):
			c.all[e.ID-1].last = e.Event
		default:
			err = fmt.Errorf("got event %q of change %d after %d changes", e.Event, e.ID, len(c.all))
		}
		if err != nil {
			return fmt.Errorf("%s:%d: the line is damaged: %w; repair it, or start another log with --log FILE", c.path,
				i+1, err)
		}
	}
	return nil
}

func (c *changes) close() error {
	var err error
	if c.file != nil {
		err = c.file.Close()
	}
	return errors.Join(err, c.lock.Release())
}

// write appends an event, and waits until it is on disk.
func (c *changes) write(e event) error {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = c.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = c.file.Sync()
	}
	return exit.With(exit.IO, err)
}

// begin logs a change that follows, and returns its ID.
func (c *changes) begin(e event) (int, error) {
	e.ID, e.Event = len(c.all)+1, begins
	if err := c.write(e); err != nil {
		return 0, fmt.Errorf("schedule advise: log of changes: %w", err)
	}
	c.all = append(c.all, &logged{e, begins})
	return e.ID, nil
}

// end logs a later event of a change.
func (c *changes) end(id int, now time.Time, name, note string) error {
	c.all[id-1].last = name
	if err := c.write(event{ID: id, Time: now, Event: name, Note: note}); err != nil {
		return fmt.Errorf("schedule advise: log of changes: %w", err)
	}
	return nil
}

// room returns how many more changes a limit per hour permits now, and when the oldest change of the last hour no
// longer counts. A refused change does not count. A change with a later time counts, because the clock may have been
// set back.
func (c *changes) room(limit int, now time.Time) (left int, next time.Time) {
	left = limit
	for _, l := range c.all {
		if l.last != failed && now.Sub(l.Time) < time.Hour {
			if left--; next.IsZero() {
				next = l.Time.Add(time.Hour)
			}
		}
	}
	return max(0, left), next
}

// open returns the changes of a cluster that undo has not reverted, the newest first. A refused change is one of them,
// because its first step may have been made.
func (c *changes) open(system, where string) []*logged {
	var list []*logged
	for i := len(c.all) - 1; i >= 0; i-- {
		if l := c.all[i]; l.System == system && l.Where == where && l.last != undone && l.last != over {
			list = append(list, l)
		}
	}
	return list
}
