package logs

import (
	"io"
	"sync"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

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

// Below returns the writer to which a Stream writes.
func Below(w io.Writer) io.Writer {
	if s, ok := w.(*Stream); ok {
		return s.w
	}
	return w
}
