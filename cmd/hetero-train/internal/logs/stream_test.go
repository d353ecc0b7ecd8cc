package logs

import (
	"bytes"
	"io"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

func TestAStreamShowsWhatATerminalWouldActOn(t *testing.T) {
	var out bytes.Buffer
	stream := NewStream(&out)
	const text = "a line\n\tGröße 😀 \x1b[2J \r \x7f \u009b \u202e \xff end\n"
	for _, b := range []byte(text) { // a character of several bytes arrives in several writes
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
	clitest.Harmless(t, "in one piece", out.String())
}
