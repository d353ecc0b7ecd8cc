package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files is the folder of the test files that scripts/huggingface_goldens.py wrote.
const files = "../huggingface/testdata/"

func open(t testing.TB, name string) *File {
	t.Helper()
	f, err := Open(files + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func text(v Value, kind Kind) string {
	switch {
	case v.Null:
		return "null"
	case kind == Real:
		return fmt.Sprint(v.Real)
	case kind == Text, kind == Binary:
		return fmt.Sprintf("%q", v.Bytes)
	case kind == Integers:
		return fmt.Sprint(v.List)
	}
	return fmt.Sprint(v.Int)
}

func TestAllKindsOfValues(t *testing.T) {
	for _, name := range []string{"kinds.arrow", "kinds.parquet"} {
		f := open(t, name)
		if f.Rows != 3 || f.Parquet != strings.HasSuffix(name, "parquet") {
			t.Errorf("%s: %d rows, Parquet %v", name, f.Rows, f.Parquet)
		}
		for _, c := range []struct {
			column string
			kind   Kind
			want   [3]string
		}{
			{"i8", Integer, [3]string{"1", "null", "-3"}}, {"u16", Integer, [3]string{"1", "65535", "null"}},
			{"i64", Integer, [3]string{"-4611686018427387904", "0", "7"}},
			{"f32", Real, [3]string{"0.5", "null", "-2"}}, {"f64", Real, [3]string{"0.25", "1e+300", "null"}},
			{"b", Boolean, [3]string{"1", "0", "null"}}, {"s", Text, [3]string{`"a"`, "null", `"ü\n"`}},
			{"ls", Text, [3]string{`"x"`, `""`, "null"}}, {"bin", Binary, [3]string{`"\x00\x01"`, "null", `""`}},
			{"list", Integers, [3]string{"[1 2]", "[]", "null"}},
			{"large", Integers, [3]string{"[5]", "null", "[6 7 8]"}},
			{"fixed", Integers, [3]string{"[1 2]", "[3 4]", "[5 6]"}},
			{"struct.n", Integer, [3]string{"1", "null", "null"}},
			{"struct.t", Text, [3]string{`"x"`, "null", `"y"`}}, {"last", Integer, [3]string{"7", "8", "9"}},
		} {
			field, ok := f.Field(c.column)
			if !ok || field.Kind != c.kind {
				t.Errorf("%s: column %s has %v, want %v", name, c.column, field.Kind, c.kind)
				continue
			}
			var got [3]string
			row := 0
			err := f.Scan(context.Background(), []Column{{Path: "i64"}, {Path: c.column}}, func(v []Value) error {
				got[row] = text(v[1], c.kind)
				row++
				return nil
			})
			if err != nil || got != c.want {
				t.Errorf("%s: column %s: got %v, %v, want %v", name, c.column, got, err, c.want)
			}
		}
		for column, want := range map[string]string{"missing": "there is no column \"missing\"; the columns are [\"i8\"",
			"nested": "another type", "struct": "structure"} {
			err := f.Scan(context.Background(), []Column{{Path: column}}, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: column %s: got %v, want %q", name, column, err, want)
			}
		}
	}
}

func TestPositionsOfAnArrowFile(t *testing.T) {
	for _, name := range []string{"kinds.arrow", "images_disk/train/data-00000-of-00002.arrow",
		"cache/flowers/default/0.0.0/0123456789abcdef/flowers-train.arrow"} {
		f, column := open(t, name), "image.bytes"
		if name == "kinds.arrow" {
			column = "ls"
		}
		contents, err := os.ReadFile(files + name)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		err = f.Scan(context.Background(), []Column{{Path: column}, {Path: column, Locate: true}},
			func(v []Value) error {
				rows++
				if v[0].Null != v[1].Null || !bytes.Equal(v[0].Bytes, contents[v[1].At:][:v[1].Size]) {
					return fmt.Errorf("row %d: got %d bytes at %d", rows, v[1].Size, v[1].At)
				}
				return nil
			})
		if err != nil || rows != int(f.Rows) {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
	}
}

func TestFeatures(t *testing.T) {
	for _, name := range []string{"images_disk/test/data-00000-of-00001.arrow", "images_snappy.parquet",
		"images_parquet/data/train-00000-of-00002.parquet"} {
		f := open(t, name)
		if got := fmt.Sprint(f.Features); got != "map[image:{Image []} label:{ClassLabel [rose daisy tulip]}]" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestLines(t *testing.T) {
	f := open(t, "texts_disk/data-00000-of-00001.arrow")
	r := f.Lines(context.Background(), []string{"text", "label"})
	got, err := io.ReadAll(r)
	want := "{\"text\":\"the film long\\n“ü”\",\"label\":\"positive\"}\n"
	if err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("got %.80q, %v, want %q", got, err, want)
	}
	if n := bytes.Count(got, []byte("\n")); n != 40 {
		t.Errorf("%d lines, want 40", n)
	}
	r = f.Lines(context.Background(), []string{"missing"})
	if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), `no column "missing"`) {
		t.Errorf("got %v", err)
	}
	r = f.Lines(context.Background(), []string{"text"})
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	arrow, err := os.ReadFile(files + "images_disk/test/data-00000-of-00001.arrow")
	if err != nil {
		t.Fatal(err)
	}
	parquet, err := os.ReadFile(files + "images_snappy.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ contents, want string }{
		"text": {"text\tlabel\n", "neither an Arrow nor a Parquet file"}, "empty": {"", "the file is empty"},
		"arrow cut in a batch":   {string(arrow[:len(arrow)-300]), "the file is truncated or damaged"},
		"arrow cut in a schema":  {string(arrow[:100]), "the file is truncated or damaged"},
		"parquet without footer": {string(parquet[:len(parquet)-30]), "the file is truncated or damaged"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.contents), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, err := Open(files + "compressed.arrow"); err == nil || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// FuzzArrow checks that damaged metadata cause errors instead of panics. It also checks that no position leads outside
// the file.
func FuzzArrow(f *testing.F) {
	for _, name := range []string{"kinds.arrow", "tokens_disk/validation/data-00000-of-00001.arrow"} {
		contents, err := os.ReadFile(files + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(contents)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, contents []byte) {
		if bytes.HasPrefix(contents, []byte("PAR1")) {
			t.Skip()
		}
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, contents, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		for _, c := range file.Fields {
			columns := []Column{{c.Name, c.Kind == Text || c.Kind == Binary}}
			file.Scan(context.Background(), columns, func(v []Value) error {
				if !v[0].Null && v[0].At+v[0].Size > int64(len(contents)) {
					t.Errorf("%d bytes at %d of %d", v[0].Size, v[0].At, len(contents))
				}
				return nil
			})
		}
	})
}
