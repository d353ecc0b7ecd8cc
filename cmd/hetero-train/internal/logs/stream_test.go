package logs

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestAStreamShowsWhatATerminalWouldActOn(t *testing.T) {
	var out bytes.Buffer
	stream := NewStream(&out)
	const text = "a line\n\tGröße 😀 \x1b[2J \r \x7f \u009b \u202e \xff end\n"
	for _, b := range []byte(text) { // characters arrive in several writes
		if n, err := stream.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "a line\n\tGröße 😀 \\u001b[2J \\u000d \\u007f \\u009b \\u202e \\xff end\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	if _, err := io.WriteString(stream, text); err != nil {
		t.Fatal(err)
	}
	sound(t, "in one piece", out.String())
}

// sound fails if a text contains control characters for a terminal, or a line that comes from a file.
func sound(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !utf8.ValidString(text) {
			t.Errorf("%s: the text is not UTF-8: %q", what, text)
		}
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) || r == '\u202e' }); at >= 0 {
			t.Errorf("%s: a terminal acts on %q", what, text[max(at-60, 0):min(at+20, len(text))])
		}
		if strings.HasPrefix(text, "FORGED") || strings.Contains(text, "\nFORGED") {
			t.Errorf("%s: a file has written a line: %q", what, text)
		}
	}
}
