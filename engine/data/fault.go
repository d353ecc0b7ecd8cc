package data

import (
	"fmt"
	"strings"
)

// Fault says what is wrong with the data: a file that is missing, corrupt or refused, or one that cannot be had.
type Fault struct {
	Op     string // what was being done, such as "decode sample"
	Path   string // file, archive member or address; "" where there is none
	Index  int    // sample index within its data set; -1 where the fault is not of one sample
	Advice string // what the user can do about it; "" where Err says enough
	Err    error  // the cause
}

func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Op)
	if f.Index >= 0 {
		fmt.Fprintf(&b, " %d", f.Index)
	}
	if f.Path != "" {
		// Names come from archives of unknown origin: quoting keeps control characters off the terminal.
		fmt.Fprintf(&b, " %q", f.Path)
	}
	fmt.Fprintf(&b, ": %v", f.Err)
	if f.Advice != "" {
		b.WriteString("; " + f.Advice)
	}
	return b.String()
}

func (f *Fault) Unwrap() error { return f.Err }
