// Package datatest builds archives, compressed contents and folders for tests of data sets. Only tests import it.
package datatest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Member is a member of an archive. Tar sets its size.
type Member struct {
	tar.Header
	Contents string
}

// File returns the member for a regular file.
func File[T string | []byte](name string, contents T) Member {
	return Member{tar.Header{Name: name, Mode: 0o644}, string(contents)}
}

// Tar returns an archive of the members, in order.
func Tar(t testing.TB, members ...Member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		m.Size = int64(len(m.Contents))
		if err := w.WriteHeader(&m.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.Contents)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Gzip returns the gzip stream of b.
func Gzip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Zstd returns the zstd frame of b.
func Zstd(t testing.TB, b []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(b, nil)
}

// Plant fills a temporary folder, and returns its path. An entry has the form NAME for an empty file, NAME:CONTENTS for
// another file, or LINK->TARGET for a symbolic link. In TARGET, DIR means the path of the folder, and DIRNAME its name.
func Plant(t testing.TB, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	names := strings.NewReplacer("DIRNAME", filepath.Base(dir), "DIR", dir)
	for _, entry := range entries {
		entry, contents, _ := strings.Cut(entry, ":")
		name, target, isLink := strings.Cut(entry, "->")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && isLink {
			err = os.Symlink(names.Replace(target), path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(contents), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
