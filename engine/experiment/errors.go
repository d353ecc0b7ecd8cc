package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// NameError says that a text cannot name an experiment.
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("experiment name %q: want 1 to %d letters, digits, '.', '_' or '-', not starting with '.' or '-'", e.Name, maxNameBytes)
}

// Holder is the process that uses a run's folder.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// InUseError says that another process uses the run's folder.
type InUseError struct {
	Dir    string
	Holder Holder // zero where the other process has not said yet who it is
}

func (e *InUseError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s since %s", e.Holder.PID, e.Holder.Host, e.Holder.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("experiment folder %s is in use by %s: wait for it, stop it, or set another experiment.name", e.Dir, who)
}

// ResumeError says that a run cannot resume from a path.
type ResumeError struct {
	Path string
	Err  error
}

func (e *ResumeError) Error() string { return fmt.Sprintf("resume from %s: %v", e.Path, e.Err) }

// Unwrap gives the reason.
func (e *ResumeError) Unwrap() error { return e.Err }

// FolderError says that the system refused something in a run's folder.
type FolderError struct {
	Op   string // what was being done
	Path string
	Err  error
}

func (e *FolderError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap gives the system's error.
func (e *FolderError) Unwrap() error { return e.Err }

func folderError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "path escapes from parent") { // what os.Root says, which exports no error for it
		err = fmt.Errorf("%w (refused: a symbolic link here leads out of the folder)", err)
	}
	if op == "create" && errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w, and is not a directory", err)
	}
	return &FolderError{Op: op, Path: path, Err: err}
}
