package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAValueComesBack(t *testing.T) {
	f := Folder{Dir: filepath.Join(t.TempDir(), "not", "yet"), MaxBytes: 64}
	name, got := Name("key"), 0
	if path, found, err := f.Load(name, &got); found || err != nil || filepath.Base(path) != name {
		t.Fatalf("unknown name: got %s, %v, %v, want nothing", path, found, err)
	}
	for _, want := range []int{7, 8} {
		if err := f.Store(name, want); err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.Load(name, &got); !found || err != nil || got != want {
			t.Errorf("got %d, %v, %v, want %d", got, found, err, want)
		}
	}
	if err := f.Store(name, strings.Repeat("x", 64)); err != nil {
		t.Fatal(err)
	}
	if path, _, err := f.Load(name, new(string)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file above the limit: got %v, want an error with its path", err)
	}
	if files, err := os.ReadDir(f.Dir); len(files) != 1 || err != nil {
		t.Errorf("got files %v, %v, want one", files, err)
	}
}

func TestReplaceLeavesNothingWhereItFails(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(folder, []byte("text"), 0o600); err == nil {
		t.Error("replaced a folder by a file")
	}
	if files, err := os.ReadDir(dir); len(files) != 1 || err != nil {
		t.Errorf("got files %v, %v, want the folder only", files, err)
	}
}
