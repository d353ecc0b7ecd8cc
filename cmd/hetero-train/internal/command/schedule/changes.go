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
	"regexp"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// The events of a change, in their order. A process that ends after begins and before applied may have made the change,
// so undo reverts such a change too.
const (
	begins  = "begins"  // the change follows
	applied = "applied" // the queue system accepted the change
	failed  = "failed"  // the queue system refused the change, or its last step
	undone  = "undone"  // advise undo reverted the change
	over    = "over"    // nothing is left to revert
)

// event is one line of the log of changes.
type event struct {
	ID     int              `json:"id"` // number of the change
	Time   time.Time        `json:"time"`
	Event  string           `json:"event"`
	System string           `json:"queue_system,omitempty"` // slurm or kubernetes; this and the next five: only begins
	On     string           `json:"cluster,omitempty"`      // identity of the cluster
	Where  string           `json:"context,omitempty"`      // context of kubectl
	Policy string           `json:"policy,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Change *jobqueue.Change `json:"change,omitempty"`
	Note   string           `json:"note,omitempty"` // the error of a failed change, or what undo did
}

// changes is the log of the changes that advise made: a file of JSON lines to which events are appended. Its lock keeps
// two processes from exceeding the limit together.
type changes struct {
	path string
	lock *filelock.Lock
	file *os.File
	all  []*logged // in chronological order
}

// logged is a change in the log: its first and its last event.
type logged struct {
	event        // event begins of the change
	last  string // name of the last event
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
	return filepath.Join(state, "hetero-train", "advise.jsonl"), nil
}

// patience is how long a command waits for the lock of a log that another command uses.
const patience = 30 * time.Second

// openChanges reads and locks the log of changes. It creates the file if necessary.
func openChanges(ctx context.Context, flag string) (*changes, error) {
	path, err := logPath(flag)
	if err != nil {
		return nil, err
	}
	if flag == "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, exit.With(exit.FolderCode(err),
				fmt.Errorf("schedule advise: folder of the log of changes: %w; want --log FILE", err))
		}
	}
	c := &changes{path: path}
	if c.lock, err = lockLog(ctx, path); err != nil {
		return nil, err
	}
	if err := c.begun(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// lockLog locks a log of changes.
func lockLog(ctx context.Context, path string) (*filelock.Lock, error) {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lock, err := filelock.Acquire(limit, path+".lock")
	if err == nil {
		return lock, nil
	}
	if ctx.Err() == nil && limit.Err() != nil {
		err = fmt.Errorf("another schedule advise uses %s for more than %v; wait until it ends, or select another log with --log FILE",
			path, patience)
	}
	return nil, logFault(err)
}

// logFault adds an exit code to an error of the log file.
func logFault(err error) error {
	return exit.With(exit.FolderCode(err), fmt.Errorf("schedule advise: log of changes: %w", err))
}

// begun reads the log and opens it for more events. It changes only a file that is certainly a log of changes.
func (c *changes) begun() error {
	text, err := c.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return logFault(err)
	}
	rest, err := c.parse(text)
	if err != nil {
		return err
	}
	if c.file, err = os.OpenFile(c.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return logFault(err)
	}
	switch {
	case rest > 0: // a process ended while it wrote the last line, so it did not make the change of this line
		err = c.file.Truncate(int64(len(text) - rest))
	case len(text) == 0: // a new log must still exist after a crash of the machine
		err = syncFolder(filepath.Dir(c.path))
	case text[len(text)-1] != '\n': // an editor removed the end of the last line
		_, err = c.file.WriteString("\n")
	}
	if err != nil {
		return logFault(err)
	}
	return nil
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readChanges reads the log of changes, which must exist. It takes no lock, and does not repair the file.
func readChanges(flag string) (*changes, error) {
	path, err := logPath(flag)
	if err != nil {
		return nil, err
	}
	c := &changes{path: path}
	text, err := c.read()
	if err != nil {
		return nil, logFault(err)
	}
	_, err = c.parse(text) // ignore an incomplete last line: another process may be writing it
	return c, err
}

// mustExist returns an error if there is no log, for a command that needs the changes of earlier ones.
func mustExist(flag string) error {
	path, err := logPath(flag)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return exit.With(exit.FolderCode(err),
			fmt.Errorf("schedule advise undo: log of changes: %w; want the --log FILE of the command that made the changes",
				err))
	}
	return nil
}

// read returns the contents of the log.
func (c *changes) read() ([]byte, error) {
	f, _, err := regular.Open(c.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// torn matches the beginning of a line of the log.
var torn = regexp.MustCompile(`^\{"id":[0-9]+,"time":"`)

// parse reads the events in text. The result rest is the length of an incomplete last line, which a process began and
// did not finish.
func (c *changes) parse(text []byte) (rest int, err error) {
	for n := 1; len(text) > 0; n++ {
		line, after, whole := bytes.Cut(text, []byte("\n"))
		var e event
		err := json.Unmarshal(line, &e)
		switch {
		case err != nil && !whole && n > 1 && (torn.Match(line) || bytes.HasPrefix([]byte(`{"id":`), line)):
			return len(line), nil
		case err != nil:
		case e.Event == begins && e.ID == len(c.all)+1 && e.Change != nil && e.Change.Job != "":
			c.all = append(c.all, &logged{e, begins})
		case (e.Event == applied || e.Event == failed || e.Event == undone || e.Event == over) && e.ID >= 1 &&
			e.ID <= len(c.all):
			c.all[e.ID-1].last = e.Event
		default:
			err = fmt.Errorf("got event %q of change %d after %d changes", e.Event, e.ID, len(c.all))
		}
		if err != nil {
			return 0, exit.With(exit.Data, fmt.Errorf("schedule advise: log of changes: %s:%d: the line is damaged, or the file is not a log of changes: %w; repair it, or select another log with --log FILE",
				c.path, n, err))
		}
		text = after
	}
	return 0, nil
}

func (c *changes) close() error {
	var err error
	if c.file != nil {
		err = c.file.Close()
	}
	if c.lock != nil {
		err = errors.Join(err, c.lock.Release())
	}
	return err
}

// write appends an event to the log, and waits until the event is on disk.
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

// begin logs that a change follows, and returns the ID of the change.
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

// room returns how many more changes the limit per hour permits now. If it permits none, next is the time at which the
// next change is possible. A change that the queue system refused counts, too, because the queue system may have done
// its first step. A change with a time after now counts, because the clock may have been set back.
func (c *changes) room(limit int, now time.Time) (left int, next time.Time) {
	var recent []time.Time
	for _, l := range c.all {
		if now.Sub(l.Time) < time.Hour {
			recent = append(recent, l.Time)
		}
	}
	if len(recent) < limit {
		return limit - len(recent), next
	}
	slices.SortFunc(recent, time.Time.Compare)
	return 0, recent[len(recent)-limit].Add(time.Hour)
}

// open returns the changes of a cluster that undo has not reverted, the newest first, and the number of such changes of
// other clusters. Refused changes are among them, because the queue system may have done their first step.
func (c *changes) open(system, on string) (list []*logged, elsewhere int) {
	for i := len(c.all) - 1; i >= 0; i-- {
		switch l := c.all[i]; {
		case l.last == undone || l.last == over:
		case l.System == system && l.On == on:
			list = append(list, l)
		default:
			elsewhere++
		}
	}
	return list, elsewhere
}
