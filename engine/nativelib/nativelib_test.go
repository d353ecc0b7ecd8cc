package nativelib

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestLibraryIsLookedForBesideTheProgram(t *testing.T) {
	t.Setenv(DirVariable, "")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exe, err = filepath.EvalSymlinks(exe)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"build/lib", "lib", "../lib/hetero-train"}
	for i, got := range Dirs() {
		if abs := filepath.Join(filepath.Dir(exe), want[i]); got != abs {
			t.Errorf("folder %d: got %s, want %s", i, got, abs)
		}
	}
	t.Setenv(DirVariable, "/elsewhere")
	if got := Dirs(); len(got) != 1 || got[0] != "/elsewhere" {
		t.Errorf("with %s set: got %v, want that folder alone", DirVariable, got)
	}
}

func TestFindNamesWhatItSoughtAndWhere(t *testing.T) {
	if err := Loadable(); err != nil {
		needtest.Missing(t, "cpu", err)
	}
	dir := t.TempDir()
	t.Setenv(DirVariable, dir)
	_, err := Find("libhetero_x.so")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "libhetero_x.so") ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want that libhetero_x.so is not in %s", err, dir)
	}
	want := filepath.Join(dir, "libhetero_x.so")
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("libhetero_x.so"); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
