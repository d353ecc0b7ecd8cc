package regular

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// Opening these files must not block. If it does, the test fails after a minute.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	time.AfterFunc(time.Minute, func() { panic("an open waits for ever") })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("contents"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := needtest.MakePipe(filepath.Join(dir, "pipe")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	opens := map[string]func(name string) (*os.File, os.FileInfo, error){
		"Open":   func(name string) (*os.File, os.FileInfo, error) { return Open(filepath.Join(dir, name)) },
		"OpenIn": func(name string) (*os.File, os.FileInfo, error) { return OpenIn(root, name) },
	}
	for what, open := range opens {
		f, info, err := open("file")
		if err != nil || info.Size() != 8 {
			t.Fatalf("%s of a file: got %v, %v", what, info, err)
		}
		f.Close()
		for name, says := range map[string]string{"pipe": "got a pipe, want a regular file",
			".": "got a folder, want a regular file", "none": "no such file"} {
			if f, _, err := open(name); f != nil || err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s of %s: got %v, want %q", what, name, err, says)
			}
		}
	}
}
