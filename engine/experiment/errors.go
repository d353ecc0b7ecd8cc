package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// NameError reports an invalid name of a run.
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf(
		"experiment name %q: want 1 to %d letters, digits, '.', '_' or '-', not starting with '.' or '-'", e.Name,
		maxNameBytes)
}

// Holder identifies the process that uses the folder of a run.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`

	// Boot and Namespace identify the boot of the host and the PID namespace in which PID is valid. They are "" if the
	// system does not provide them.
	Boot      string `json:"boot,omitempty"`
	Namespace string `json:"pid_namespace,omitempty"`
}

// InUseError reports that another process uses the run's folder.
type InUseError struct {
	Dir    string
	Holder Holder // zero value if the other process has not written its identity yet
}

func (e *InUseError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s since %s", e.Holder.PID, e.Holder.Host, e.Holder.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("experiment folder %s is in use by %s: wait for it, stop it, or set another experiment.name",
		e.Dir, who)
}

// ResumeError reports that a run cannot resume from the given path.
type ResumeError struct {
	Path string
	Err  error
}

func (e *ResumeError) Error() string { return fmt.Sprintf("resume from %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *ResumeError) Unwrap() error { return e.Err }

// FolderError reports an operation in the folder of a run that the system refused.
type FolderError struct {
	Op   string // operation that was attempted
	Path string
	Err  error
}

func (e *FolderError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the error of the system.
func (e *FolderError) Unwrap() error { return e.Err }

func folderError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "path escapes from parent") {
		// This is the text of an unexported error of os.Root.
		err = fmt.Errorf("%w (a symbolic link leads out of the folder, which is not allowed)", err)
	}
	if op == "create" && errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w, and is not a directory", err)
	}
	return &FolderError{Op: op, Path: path, Err: err}
}
