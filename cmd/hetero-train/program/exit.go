package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/weights"
	"github.com/hetero-train/hetero-train/nccl"
)

// Exit codes. Scripts and schedulers rely on them.
const (
	exitDone          = 0
	exitUnexpected    = 1   // anything without a code of its own
	exitUsage         = 2   // bad flags or configuration; experiment folder in use
	exitData          = 3   // data or checkpoint corrupt or not to be had
	exitDiverged      = 4   // the loss is no longer a number
	exitCommunication = 5   // lost quorum or communication
	exitDevice        = 6   // device failure
	exitIO            = 7   // the final save failed
	exitTerminated    = 75  // SIGTERM, saved
	exitInterrupted   = 130 // SIGINT; saved, unless the error says otherwise
	exitKilled        = 143 // SIGTERM, save failed
)

// codedError is an error that decides how the program exits.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode gives err an exit code; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code: code, err: err}
}

// shown is an error that the user has seen already: it only decides how the program exits.
type shown struct{ error }

// alreadyShown gives err an exit code without another message.
func alreadyShown(err error) error { return shown{err} }

// Unwrap gives the error.
func (s shown) Unwrap() error { return s.error }

func usageError(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// exitCode is the code of the outermost codedError; faults of a configuration are usage errors.
func exitCode(err error) int {
	var coded *codedError
	var faults *config.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &faults):
		return exitUsage
	}
	return exitUnexpected
}

// folderCode tells a folder that the user must mend, because it is missing, read-only, somebody else's or no folder at all, from a disk that failed or is
// full.
func folderCode(err error) int {
	for _, mend := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, mend) {
			return exitUsage
		}
	}
	if refused := new(regular.Error); errors.As(err, &refused) {
		return exitUsage
	}
	for _, mend := range []string{"path escapes from parent", "not a directory"} { // os.Root has no error values for them
		if strings.Contains(err.Error(), mend) {
			return exitUsage
		}
	}
	return exitIO
}

// advice is what a user can do about a refusal of the system, "" where the error says it all.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "; raise the limit of open files (ulimit -n): a rank needs about 64"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; make room on that disk"
	}
	return ""
}

// stopOfAnother is the signal that ended another rank, as that rank has told this one.
func stopOfAnother(err error) (stopped, bool) {
	var lost *rendezvous.LostError
	if !errors.As(err, &lost) {
		return stopped{}, false
	}
	for _, s := range []stopped{{syscall.SIGTERM}, {syscall.SIGINT}, {syscall.SIGHUP}} {
		if lost.Cause == s.Error() {
			return s, true
		}
	}
	return stopped{}, false
}

// classify gives an error the exit code that its kind has.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return err
	}
	var s stopped
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &s) { // before the first step: there is nothing to save
		return withCode(s.saved(), s)
	}
	err = firstCause(err)
	is := func(target any) bool { return errors.As(err, target) }
	if s, ok := stopOfAnother(err); ok { // before the first step: later ranks stop together
		return withCode(s.saved(), fmt.Errorf("%w, as another rank was: %w", s, err))
	}
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return withCode(exitUsage, err)
	case errors.Is(err, context.DeadlineExceeded): // nothing but meeting the other ranks has one
		return withCode(exitCommunication, fmt.Errorf("%w (parallel.rendezvous_timeout_seconds)", err))
	case errors.Is(err, train.ErrDiverged):
		return withCode(exitDiverged, err)
	case errors.Is(err, train.ErrFinalSave):
		if errors.As(context.Cause(ctx), &s) {
			return withCode(s.unsaved(), err)
		}
		return withCode(exitIO, err)
	case is(new(*data.Fault)), is(new(*checkpoint.CorruptError)), is(new(*checkpoint.FormatError)):
		return withCode(exitData, err)
	case is(new(*config.Error)), is(new(*graph.BuildError)), is(new(*checkpoint.MismatchError)), is(new(*weights.RenameError)), is(new(*experiment.NameError)), is(new(*experiment.InUseError)), is(new(*experiment.ResumeError)), is(new(*experiment.ChangedError)):
		return withCode(exitUsage, err)
	case is(new(*checkpoint.IOError)), is(new(*experiment.FolderError)):
		return withCode(folderCode(err), err)
	case is(new(*gradsync.DifferenceError)), is(new(*rendezvous.DisagreeError)), is(new(*rendezvous.DuplicateError)), is(new(*rendezvous.ListenError)), errors.Is(err, rendezvous.ErrToken), errors.Is(err, shm.ErrUnavailable):
		return withCode(exitUsage, err)
	case is(new(*collective.PeerError)), is(new(*collective.TimeoutError)), is(new(*collective.MismatchError)), is(new(*nccl.Error)), is(new(*gradsync.ReplicaError)),
		is(new(*rendezvous.LostError)), is(new(*rendezvous.MissingError)), is(new(*rendezvous.UnreachableError)), errors.Is(err, collective.ErrAborted):
		return withCode(exitCommunication, err)
	case is(new(*train.MemoryError)):
		return withCode(exitDevice, fmt.Errorf("%w; lower data.batch_size, or raise train.grad_accumulation, which cuts the batch into parts", err))
	case errors.Is(err, device.ErrDevice), errors.Is(err, device.ErrOutOfMemory):
		return withCode(exitDevice, err)
	}
	return withCode(exitUnexpected, err)
}
