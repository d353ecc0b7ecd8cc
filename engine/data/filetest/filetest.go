// Package filetest creates small folders for tests. Only tests import it.
package filetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Plant creates files in dir, and returns dir. Each file contains its name. A name of the form LINK->TARGET creates a
// link; DIR in the target stands for dir.
func Plant(t testing.TB, dir string, names ...string) string {
	t.Helper()
	for _, name := range names {
		link, target, isLink := strings.Cut(name, "->")
		path := filepath.Join(dir, link)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && isLink {
			err = os.Symlink(strings.ReplaceAll(target, "DIR", dir), path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
