package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Exit codes. Scripts and schedulers depend on these values.
const (
	Done          = 0
	Unexpected    = 1   // any error without another code
	Usage         = 2   // invalid flags or configuration
	Data          = 3   // data or a checkpoint is damaged or not available
	Diverged      = 4   // the loss is not finite
	Communication = 5   // a rank or the communication was lost
	Device        = 6   // device failure
	IO            = 7   // the final save failed, or another process uses the folder of the run
	Terminated    = 75  // SIGTERM; the run was saved, or had no step to save
	Interrupted   = 130 // SIGINT; the run was saved unless the error states otherwise
	Killed        = 143 // SIGTERM; the save failed
)

// IsOwn reports whether a code means that the rank itself has failed. All other codes result from a signal or from the
// loss of another rank.
func IsOwn(code int) bool {
	switch code {
	case Unexpected, Usage, Data, Diverged, Device:
		return true
	}
	return false
}

// coded is an error with an exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// With attaches an exit code to err. It returns nil if err is nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code: code, err: err}
}

// Shown is an error that was already printed, so the program does not print it again.
type Shown struct{ error }

// AlreadyShown wraps err so that it is not printed again.
func AlreadyShown(err error) error { return Shown{err} }

// Unwrap returns the wrapped error.
func (s Shown) Unwrap() error { return s.error }

// Usagef formats a usage error, with the exit code Usage.
func Usagef(format string, args ...any) error {
	return With(Usage, fmt.Errorf(format, args...))
}

// NoRuns returns the usage error of a command that finds no folder of runs.
func NoRuns(command, folder string) error {
	return Usagef("%s: there is no folder %s: start runs with hetero-train train, or set --input-dir to the folder that contains the runs",
		command, folder)
}

// Code returns the exit code of err: the code of the outermost coded error. Faults of a configuration have the code
// Usage.
func Code(err error) int {
	var coded *coded
	var faults *config.Error
	switch {
	case err == nil:
		return Done
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &faults):
		return Usage
	}
	return Unexpected
}

// FolderCode returns the exit code of an error in a folder. The code is Usage if the user must fix the folder: it is
// missing, read-only, owned by another user, or not a folder. The code is IO if the disk has failed or is full.
func FolderCode(err error) int {
	for _, mend := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR,
		syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, mend) {
			return Usage
		}
	}
	if refused := new(regular.Error); errors.As(err, &refused) {
		return Usage
	}
	// The errors of os.Root for these two cases have no error value, so compare their texts.
	for _, mend := range []string{"path escapes from parent", "not a directory"} {
		if strings.Contains(err.Error(), mend) {
			return Usage
		}
	}
	return IO
}

// Advice returns a text on how to fix an error of the operating system. It returns "" if the error already explains
// this.
func Advice(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "; raise the limit of open files (ulimit -n, or LimitNOFILE of systemd)"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; free space on that disk"
	case errors.Is(err, syscall.ENOLCK):
		return "; this file system grants no locks: mount NFS with a lock service (rpc.statd) or with -o local_lock=flock if one machine uses it, or use a folder on another disk"
	}
	return ""
}

// IsFolderInUse reports whether another process uses the folder of the run.
func IsFolderInUse(err error) bool { return errors.As(err, new(*experiment.InUseError)) }
