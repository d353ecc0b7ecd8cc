package regular

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestEachLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	long := strings.Repeat("x", mostLineBytes+1)
	for text, want := range map[string][]string{
		"": nil, "a": {"a"}, "a\n\nb": {"a\n", "\n", "b"}, long: {""}, "a\n" + long + "\nb\n": {"a\n", "", "b\n"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := EachLine(path, func(line []byte) error {
			got = append(got, string(line))
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%.10q: got %.40q, %v, want %.40q", text, got, err, want)
		}
	}
}

// A sparse file needs no disk space, and its zeros contain no line end. If there is a line end in every 200 MiB, no
// single line exceeds the limit.
func TestEachLineRefusesASparseFile(t *testing.T) {
	for name, every := range map[string]int64{"one line": 60 << 30, "many lines": 200 << 20} {
		path := filepath.Join(t.TempDir(), "lines")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for at := int64(0); at < 4<<30; at += every {
			if _, err := f.WriteAt([]byte("x\n"), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(60 << 30); err != nil {
			t.Fatal(err)
		}
		lines := 0
		err = EachLine(path, func([]byte) error {
			lines++
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "got more than 256 MiB") || lines > 2 {
			t.Errorf("%s: got %d lines and %v, want at most two lines and an error", name, lines, err)
		}
	}
}

// TestReadRefusesTooMuch uses a sparse file, which needs no disk space. If Read read the whole file, the memory would
// not suffice.
func TestReadRefusesTooMuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345678"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path, 8); string(text) != "12345678" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	for _, size := range []int64{9, 60 << 30} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, 8); err == nil || !strings.Contains(err.Error(), "want at most 8") {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
}

// TestPipesAreNotWrittenTo also uses a pipe that another process reads. Opening this pipe would succeed.
func TestPipesAreNotWrittenTo(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := needtest.MakePipe(pipe); err != nil {
		t.Fatal(err)
	}
	if f, err := Write(pipe, os.O_WRONLY|os.O_APPEND); err == nil {
		t.Errorf("without a reader: got %v", f)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := Write(pipe, os.O_WRONLY|os.O_APPEND); err == nil ||
		!strings.Contains(err.Error(), "want a regular file") {
		t.Errorf("with a reader: got %v", err)
	}
}
