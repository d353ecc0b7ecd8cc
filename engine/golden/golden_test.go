package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that stores its messages.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func TestCheckNamesTheFirstLineThatDiffers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{"a\nb\nc\n", ""},
		{"a\nB\nc\n", "differs from line 2 on"},
		{"a\nb\n", "differs from line 3 on"},
		{"a\nb\nc\nd", "differs from line 4 on"},
	} {
		r := &recorder{TB: t}
		if Check(r, file, c.got); (r.said != "") != (c.want != "") || !strings.Contains(r.said, c.want) {
			t.Errorf("%q: got %q, want %q", c.got, r.said, c.want)
		}
	}
}

func TestUpdateWritesTheFile(t *testing.T) {
	*update = true
	defer func() { *update = false }()
	file := filepath.Join(t.TempDir(), "file.txt")
	Check(t, file, "new")
	if text, err := os.ReadFile(file); err != nil || string(text) != "new" {
		t.Errorf("got %q, %v, want the text in the file", text, err)
	}
}
