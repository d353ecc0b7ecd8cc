package logs

import (
	"io"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(w io.Writer) bool {
	f := FileOf(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// TerminalWidth returns the width of a terminal, in columns.
func TerminalWidth(w io.Writer) int {
	const usual = 80
	if width, _, err := term.GetSize(int(FileOf(w).Fd())); err == nil && width > 0 {
		return width
	}
	return usual
}
