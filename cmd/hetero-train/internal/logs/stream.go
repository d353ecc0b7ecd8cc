package logs

import (
	"io"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
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

// Stream is standard output or standard error for all writers of the process. It escapes control characters. Colors and
// progress bars bypass it, because the program writes them to the writer below (see Below).
type Stream struct {
	w io.Writer

	mu    sync.Mutex
	rest  []byte // first bytes of an incomplete character
	fault error  // error of the first failed write
}

// NewStream returns a Stream that writes to w.
func NewStream(w io.Writer) *Stream { return &Stream{w: w} }

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.rest, b...)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if at := len(text) - i; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				end = at
			}
			break
		}
	}
	s.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(s.w, show.Visible(string(text[:end]))); err != nil {
		if s.fault == nil {
			s.fault = err
		}
		return 0, &PrintError{err}
	}
	return len(b), nil
}

// PrintError is an error of writing to standard output or standard error.
type PrintError struct{ error }

// Unwrap returns the wrapped error.
func (e *PrintError) Unwrap() error { return e.error }

// FaultOf returns the first error of writing to a stream or to its outlet. It returns nil if no write failed.
func FaultOf(w io.Writer) error {
	s, ok := w.(*Stream)
	if !ok {
		return nil
	}
	if o := OutletOf(s); o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.Gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// Below returns the writer to which a Stream writes.
func Below(w io.Writer) io.Writer {
	if s, ok := w.(*Stream); ok {
		return s.w
	}
	return w
}

// OutletOf returns the outlet of a stream, or nil.
func OutletOf(w io.Writer) *outlet {
	o, _ := Below(w).(*outlet)
	return o
}
