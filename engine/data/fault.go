package data

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Fault is the error of data that is missing, corrupt, refused or unavailable.
type Fault struct {
	Op     string // the operation that failed, such as "decode sample"
	Path   string // file, archive member or URL; may be ""
	Index  int    // index of the sample in its data set; -1 if the fault does not concern a single sample
	Advice string // advice for the user; "" if Err is sufficient
	Err    error  // the cause
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

// FileFault returns the fault of an operation on the file path. It removes the path from err, because Fault prints it.
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
