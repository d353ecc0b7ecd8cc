package ingest

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Fault is one fault of a source, with its line.
type Fault struct {
	Source string // name of the file
	Line   int    // from 1; 0 if the fault concerns the whole source
	What   string // what is invalid, such as "job \"a\": priority"
	Got    string // the value found; "" if it adds no information
	Want   string // how to make it valid
}

// String returns the fault on one line: "FILE:LINE: what: got X, want Y".
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Source)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	b.WriteString(": " + f.What)
	switch {
	case f.Got != "" && f.Want != "":
		fmt.Fprintf(&b, ": got %s, want %s", f.Got, f.Want)
	case f.Got != "":
		fmt.Fprintf(&b, ": got %s", f.Got)
	case f.Want != "":
		fmt.Fprintf(&b, ": want %s", f.Want)
	}
	return b.String()
}

// Error is the list of all faults of the sources.
type Error struct {
	Faults []Fault // at most maxFaults
	More   int     // number of faults that are not in Faults
}

// maxFaults limits the list, because a file in another format can have a fault on each line.
const maxFaults = 100

// Error returns the faults, one per line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Faults)+1)
	for _, f := range e.Faults {
		lines = append(lines, f.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more faults", e.More))
	}
	return strings.Join(lines, "\n")
}

// faults collects faults.
type faults struct {
	list []Fault
	more int
}

func (f *faults) add(source string, line int, what, got, want string) {
	if len(f.list) == maxFaults {
		f.more++
		return
	}
	f.list = append(f.list, Fault{source, line, what, got, want})
}

func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	return &Error{f.list, f.more}
}

// quote quotes a text of a source for an error. The result has no control characters, and at most 60 characters.
func quote(text string) string {
	if len(text) > 60 {
		cut := 57
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	return fmt.Sprintf("%q", text)
}
