package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Fault is the error of data that is missing, corrupt, refused or unavailable.
type Fault struct {
	Op     string // the operation that failed, such as "decode sample"
	Path   string // file, archive member or URL; may be ""
	Index  int    // index of the sample in its data set; -1 if the fault does not concern a single sample
	Advice string // advice for the user; "" if Err is sufficient
	Err    error  // the cause
	// Damaged states that the whole file is damaged. With data.corrupt = "skip", such a file is left out.
	Damaged bool
}

// LeftOut is a damaged part of the data that was left out when the data set was opened, at the caller's request.
type LeftOut struct {
	Path   string // path of the file, or of a sample in it
	Whole  bool   // all samples of the file are left out
	Rest   bool   // all samples of the file after the damage are left out
	Reason error
}

func (l LeftOut) String() string {
	return (&Fault{Op: "left out", Path: l.Path, Index: -1, Err: l.Reason}).Error()
}

// IsDamage reports whether the contents of a file caused err. It returns false for missing files, permissions, failed
// requests for objects, disk and network errors, exhausted resources and a cancelled context.
func IsDamage(err error) bool {
	switch {
	case err == nil, Exhausted(err), errors.As(err, new(interface{ Requested() })),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrNotExist), errors.As(err, new(*regular.Error)):
		return false
	}
	return !errors.As(err, new(syscall.Errno))
}

func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Op)
	if f.Index >= 0 {
		fmt.Fprintf(&b, " %d", f.Index)
	}
	if f.Path != "" {
		// Names may come from untrusted archives. Quoting keeps control characters away from the terminal.
		fmt.Fprintf(&b, " %q", f.Path)
	}
	fmt.Fprintf(&b, ": %v", f.Err)
	if f.Advice != "" {
		b.WriteString("; " + f.Advice)
	}
	return b.String()
}

func (f *Fault) Unwrap() error { return f.Err }

// FileFault returns the Fault of an operation on the file path. It removes the path from err, because Fault.Error
// prints the path.
func FileFault(op, path string, err error) *Fault {
	var refused *regular.Error
	if errors.As(err, &refused) && refused.Path == path {
		err = errors.New(refused.Reason)
	}
	var sys *os.PathError
	if errors.As(err, &sys) && sys.Path == path {
		err = sys.Err
	}
	return &Fault{Op: op, Path: path, Index: -1, Err: err}
}
