package program

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// foreign makes a name or a text from a file fit for one field of a line: it is quoted, with escapes as in Go and JSON, unless all of it can be seen.
// Files come from others: escape sequences in their names would reach the terminal, and line ends would forge lines.
func foreign(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(text)
		}
	}
	if strings.HasPrefix(text, `"`) || text == "" {
		return strconv.Quote(text)
	}
	return text
}

// foreigners applies foreign to each of several texts.
func foreigners(texts []string) []string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = foreign(text)
	}
	return shown
}

// hidden reports whether a terminal acts on r instead of showing it: control characters but for line ends and tabs, and what changes the direction of text.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) || r == '\u2028' || r == '\u2029'
}

// visible replaces hidden characters by escapes that JSON knows, and bytes that are not UTF-8 by \xNN.
func visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !hidden(r):
			b.WriteString(text[:size])
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return b.String()
}

// indented moves all lines but the first to the right, so that a line end within a message cannot begin a message of its own.
func indented(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if i > 0 && line != "" && line[0] != ' ' && line[0] != '\t' {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}

// shownStream is standard output or error: nothing hidden passes it, whoever wrote it. Colours and progress bars go to the writer below.
type shownStream struct {
	w io.Writer

	mu    sync.Mutex
	rest  []byte // of a character that is not complete
	fault error  // of the first write that failed
}

// newStream passes on to w what may be shown.
func newStream(w io.Writer) *shownStream { return &shownStream{w: w} }

// Write implements io.Writer.
func (s *shownStream) Write(b []byte) (int, error) {
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
	if _, err := io.WriteString(s.w, visible(string(text[:end]))); err != nil {
		if s.fault == nil {
			s.fault = err
		}
		return 0, &printError{err}
	}
	return len(b), nil
}

// printError is an error of writing to standard output or error.
type printError struct{ error }

// Unwrap gives the error.
func (e *printError) Unwrap() error { return e.error }

// faultOf is the first error of writing to a stream, also of an outlet that has written on behalf of it; nil: all was written.
func faultOf(w io.Writer) error {
	s, ok := w.(*shownStream)
	if !ok {
		return nil
	}
	if o := outletOf(s); o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// below is the writer below a shownStream.
func below(w io.Writer) io.Writer {
	if s, ok := w.(*shownStream); ok {
		return s.w
	}
	return w
}

// outletOf is the outlet of a stream; nil: it has none.
func outletOf(w io.Writer) *outlet {
	o, _ := below(w).(*outlet)
	return o
}
