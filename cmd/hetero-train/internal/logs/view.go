package logs

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// View shows a text that changes. On a terminal, each text replaces the previous text, and is truncated to the size of
// the window. In a file or a pipe, the texts follow each other.
type View struct {
	out      io.Writer
	terminal *os.File // nil: the output is a file or a pipe
	again    bool     // a text was already shown
}

// NewView returns a View on a stream.
func NewView(out io.Writer) *View {
	s := &View{out: out}
	if f := FileOf(out); f != nil && IsTerminal(out) {
		s.terminal = f
	}
	return s
}

// Show shows a text, which ends with a line end.
func (s *View) Show(text string) error {
	switch {
	case s.terminal != nil:
		text = s.fit(text)
		if s.again { // write below the Stream, which would escape the control characters
			if _, err := s.terminal.WriteString("\x1b[H\x1b[J"); err != nil {
				return err
			}
		}
	case s.again:
		text = "\n" + text
	}
	s.again = true
	_, err := io.WriteString(s.out, text)
	return err
}

// Size returns the number of columns and lines of the window. It returns 0 and 0 if the output is a file or a pipe, or
// if the size is unknown.
func (s *View) Size() (width, height int) {
	if s.terminal == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 1 || height < 2 {
		return 0, 0
	}
	return width, height
}

// fit truncates a text to the size of the window, so that it does not scroll.
func (s *View) fit(text string) string {
	width, height := s.Size()
	if width == 0 {
		return text
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > height-1 {
		left := len(lines) - (height - 2)
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines do not fit: enlarge the window, or use --json",
			left))
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			lines[i] = string(runes[:width-1]) + "…"
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
