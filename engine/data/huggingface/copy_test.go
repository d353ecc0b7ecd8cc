package huggingface

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/hetero-train/hetero-train/engine/data/images"
)

type imageRow struct {
	Image []byte `parquet:"image,dict"`
	Label int64  `parquet:"label"`
}

// plainRow is an imageRow without a dictionary.
type plainRow struct {
	Image []byte `parquet:"image"`
	Label int64  `parquet:"label"`
}

func writeRows[T any](t testing.TB, path string, rows []T, o ...parquet.WriterOption) {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](out, append(o, parquet.DataPageStatistics(false))...)
	_, err = w.Write(rows)
	if err := errors.Join(err, w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestCopiesAreLimited(t *testing.T) {
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(i * i * 7 >> 5)
	}
	for want, write := range map[string]func(path string){
		"an image of 67108865 bytes, want at most 67108864": func(path string) {
			writeRows(t, path, []plainRow{{make([]byte, images.MaxFileBytes+1), 0}, {nil, 1}})
		},
		"(200 times the size of the file)": func(path string) {
			writeRows(t, path, slices.Repeat([]imageRow{{noise, 0}, {noise, 1}}, 1000))
		},
	} {
		path := filepath.Join(t.TempDir(), "x.parquet")
		write(path)
		o := options(t, path)
		o.Image, o.SkipDamaged = "image", true
		s, err := Open(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", s, err, want)
		}
		if left, err := filepath.Glob(filepath.Join(o.CacheDir, "columns", "*.column*")); err != nil ||
			slices.ContainsFunc(left, func(name string) bool { return !strings.HasSuffix(name, ".lock") }) {
			t.Errorf("the cache has %v, %v", left, err)
		}
	}
}

func TestSpace(t *testing.T) {
	dir := t.TempDir()
	if most, why := space(dir, 1<<50); !strings.Contains(why, "free space") || most <= 0 || most >= 1<<50 {
		t.Errorf("a huge file: %d bytes, %s", most, why)
	}
	if most, _ := space(dir, 10); most > expandFree {
		t.Errorf("a small file: %d bytes, want at most %d", most, expandFree)
	}
}

// If a file is replaced, its copy must not be used. This must hold even if the size and the modification time are the
// same.
func TestTheCopyBelongsToTheContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	o := options(t, path)
	o.Image = "image"
	at := time.Unix(1700000000, 0)
	for _, want := range []string{"first", "other"} {
		writeRows(t, path, []imageRow{{[]byte(want), 0}, {[]byte(want), 1}})
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Train.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.(interface{ Contents(int) ([]byte, error) }).Contents(0); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		r.Close()
		s.Close()
	}
}
