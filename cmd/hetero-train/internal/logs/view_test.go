package logs

import (
	"os"
	"strings"
	"testing"
)

// A text is truncated only on a terminal, because only a terminal has a known size.
func TestAFileIsNotCut(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text := strings.Repeat(strings.Repeat("x", 1000)+"\n", 1000)
	if got := (&View{terminal: file}).fit(text); got != text {
		t.Errorf("got %d bytes, want all %d", len(got), len(text))
	}
}
