package data

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Fault reports data that is missing, corrupt, refused or unavailable.
type Fault struct {
	Op     string // the attempted operation, such as "decode sample"
	Path   string // file, archive member or URL; may be ""
	Index  int    // sample index within its data set; -1 if the fault concerns no single sample
	Advice string // remedy for the user; "" if Err suffices
	Err    error  // the cause
}

func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Op)
	if f.Index >= 0 {
		fmt.Fprintf(&b, " %d", f.Index)
	}
	if f.Path != "" {
		// Names may come from untrusted archives. Quoting prevents control characters from reaching the terminal.
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
