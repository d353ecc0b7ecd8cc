package cifar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/data/download"
)

// pixel returns a pixel of the fixtures: that of image n of a file, at the given channel and position.
func pixel(file, n, channel, y, x int) byte { return byte(file*31 + n*7 + channel*100 + y*3 + x) }

// records returns a file of n records.
func records(file, n, labelBytes, classes int) []byte {
	var b []byte
	for i := range n {
		for k := range labelBytes {
			b = append(b, byte((file+i+k)%classes))
		}
		for channel := range 3 {
			for y := range side {
				for x := range side {
					b = append(b, pixel(file, i, channel, y, x))
				}
			}
		}
	}
	return b
}

// fixture returns the files of a small archive of the variant v, by name.
func fixture(v Variant) map[string][]byte {
	all := map[string][]byte{"readme.html": []byte("<html>")}
	var names strings.Builder
	for c := range v.classes {
		fmt.Fprintf(&names, "name%d\n", c)
	}
	all[v.namesFile] = []byte(names.String() + "\n")
	for k, name := range v.trainFiles {
		all[name] = records(k, 3+k, v.labelBytes, v.classes)
	}
	all[v.testFile] = records(9, 4, v.labelBytes, v.classes)
	return all
}

// pack returns a tar.gz of the files in random order, because the order must not affect the result.
func pack(t testing.TB, v Variant, files map[string][]byte) []byte {
	t.Helper()
	var members []datatest.Member
	for name, contents := range files {
		members = append(members, datatest.File(v.folder+"/"+name, contents))
	}
	return datatest.Gzip(t, datatest.Tar(t, members...))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// local returns a variant whose archive contains the fixture and is served at url.
func local(t testing.TB, v Variant, url string) (Variant, []byte) {
	t.Helper()
	packed := pack(t, v, fixture(v))
	v.SHA256 = sum(packed)
	v.URL = url + v.URL[strings.LastIndexByte(v.URL, '/'):]
	return v, packed
}

// check compares the training part and the evaluation part with the fixture.
func check(t *testing.T, v Variant, s data.Splits) {
	t.Helper()
	type place struct{ file, n int }
	var train, test []place
	for k := range v.trainFiles {
		for n := range 3 + k {
			train = append(train, place{k, n})
		}
	}
	for n := range 4 {
		test = append(test, place{9, n})
	}
	for part, c := range map[string]struct {
		ds    data.Dataset
		wants []place
	}{"train": {s.Train, train}, "test": {s.Eval, test}} {
		if c.ds.Len() != len(c.wants) || len(c.ds.Classes()) != v.classes || c.ds.Classes()[3] != "name3" {
			t.Fatalf("%s: %d samples, classes %v", part, c.ds.Len(), c.ds.Classes())
		}
		r, err := c.ds.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for i, want := range c.wants {
			var img data.Image
			if err := r.Read(i, nil, &img); err != nil {
				t.Fatal(err)
			}
			if got, want := c.ds.Label(i), (want.file+want.n+v.labelBytes-1)%v.classes; got != want {
				t.Fatalf("%s %d: label %d, want %d", part, i, got, want)
			}
			for at, got := range img.Pix {
				channel, x, y := at%3, at/3%side, at/3/side
				if want := pixel(want.file, want.n, channel, y, x); got != want {
					t.Fatalf("%s %d: channel %d at (%d, %d) is %d, want %d", part, i, channel, x, y, got, want)
				}
			}
		}
	}
}

func TestOpenDownloadsOnceAndReadsBothVariants(t *testing.T) {
	for _, official := range []Variant{Ten, Hundred} {
		t.Run(official.Name, func(t *testing.T) {
			requests := 0
			var packed []byte
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed))
			}))
			defer s.Close()
			var v Variant
			v, packed = local(t, official, s.URL)
			o := Options{Variant: v, CacheDir: t.TempDir()}
			for range 2 {
				splits, err := Open(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				check(t, v, splits)
			}
			if requests != 1 {
				t.Errorf("%d downloads", requests)
			}
		})
	}
}

func TestOpenTakesAnArchiveOrAFolder(t *testing.T) {
	v, packed := local(t, Ten, "http://unused.invalid")
	write := func(path string, contents []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, contents, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write(filepath.Join(dir, "some", "name.tgz"), packed)
	write(filepath.Join(dir, "with", "cifar-10-binary.tar.gz"), packed)
	for name, contents := range fixture(v) {
		write(filepath.Join(dir, "extracted", name), contents)
		write(filepath.Join(dir, "around", v.folder, name), contents)
	}
	for _, path := range []string{"some/name.tgz", "with", "extracted", "around"} {
		t.Run(path, func(t *testing.T) {
			splits, err := Open(t.Context(), Options{Variant: v, Path: filepath.Join(dir, path)})
			if err != nil {
				t.Fatal(err)
			}
			check(t, v, splits)
		})
	}
}

func TestAnArchiveThatCannotBeHadSaysWhatToDo(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	v, _ := local(t, Ten, s.URL)
	_, err := Open(t.Context(), Options{Variant: v, CacheDir: t.TempDir()})
	var fault *data.Fault
	if !errors.As(err, &fault) || !errors.Is(err, download.ErrUnavailable) {
		t.Fatalf("got %v, want a Fault with ErrUnavailable", err)
	}
	for _, want := range []string{"cifar10", "404", v.URL, "data.path"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}

func TestACacheFolderThatCannotBeWrittenIsNamed(t *testing.T) {
	v, _ := local(t, Ten, "http://unused.invalid")
	taken, locked := filepath.Join(t.TempDir(), "cache"), t.TempDir()
	if err := errors.Join(os.WriteFile(taken, nil, 0o644),
		os.Mkdir(filepath.Join(locked, "cifar-10-binary.tar.gz.lock"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file in its place": taken, "its lock cannot be made": locked} {
		_, err := Open(t.Context(), Options{Variant: v, CacheDir: dir})
		var fault *data.Fault
		if !errors.As(err, &fault) || errors.Is(err, download.ErrUnavailable) ||
			!strings.Contains(fault.Advice, "data.cache_dir (now "+dir+")") {
			t.Errorf("%s: got %v, want a Fault that advises data.cache_dir and allows no fallback", name, err)
		}
	}
}

func TestAWrongHashIsAFaultThatAllowsNoFallback(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "other")
	}))
	defer s.Close()
	v, packed := local(t, Ten, s.URL)
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := os.WriteFile(path, packed[:len(packed)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"downloaded": {Variant: v, CacheDir: t.TempDir()},
		"given":      {Variant: v, Path: path},
	} {
		_, err := Open(t.Context(), o)
		var fault *data.Fault
		if !errors.As(err, &fault) || !errors.Is(err, download.ErrMismatch) || errors.Is(err, download.ErrUnavailable) {
			t.Errorf("%s: got %v, want a Fault with ErrMismatch", name, err)
		}
	}
}

func TestDamagedContentsAreFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(files map[string][]byte)
		want   string
	}{
		{"missing batch", func(f map[string][]byte) { delete(f, "data_batch_3.bin") }, "no data_batch_3.bin"},
		{"missing names", func(f map[string][]byte) { delete(f, "batches.meta.txt") }, "no batches.meta.txt"},
		{"missing test", func(f map[string][]byte) { delete(f, "test_batch.bin") }, "no test_batch.bin"},
		{"cut record", func(f map[string][]byte) { f["test_batch.bin"] = f["test_batch.bin"][:5000] },
			"test_batch.bin: record 1 has 1927 bytes, want 3073"},
		{"empty file", func(f map[string][]byte) { f["test_batch.bin"] = nil }, "test_batch.bin: no records"},
		{"label out of range", func(f map[string][]byte) { f["test_batch.bin"][3073] = 10 },
			"test_batch.bin: record 1 has label 10, want below 10"},
		{"too few names", func(f map[string][]byte) { f["batches.meta.txt"] = []byte("a\nb\n") }, "2 class names"},
		{"endless names", func(f map[string][]byte) { f["batches.meta.txt"] = bytes.Repeat([]byte("a"), 1<<20) },
			"1 class names of 65537 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Ten
			files := fixture(v)
			c.change(files)
			packed := pack(t, v, files)
			v.SHA256 = sum(packed)
			path := filepath.Join(t.TempDir(), "a.tar.gz")
			if err := os.WriteFile(path, packed, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Options{Variant: v, Path: path})
			var fault *data.Fault
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("archive: got %v, want a Fault with %q", err, c.want)
			}
			dir := t.TempDir()
			for name, contents := range files {
				if err := os.WriteFile(filepath.Join(dir, name), contents, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := c.want
			if _, err := Open(t.Context(), Options{Variant: v, Path: dir}); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("folder: got %v, want %q", err, want)
			}
		})
	}
}

func TestAFolderWithoutTheFilesOrNoPathAtAllIsAFault(t *testing.T) {
	for name, path := range map[string]string{
		"empty folder": t.TempDir(), "nothing": filepath.Join(t.TempDir(), "none")} {
		_, err := Open(t.Context(), Options{Variant: Ten, Path: path})
		var fault *data.Fault
		if !errors.As(err, &fault) || fault.Advice == "" {
			t.Errorf("%s: got %v, want a Fault with advice", name, err)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, _ := local(t, Ten, "http://unused.invalid")
	if _, err := Open(ctx, Options{Variant: v, CacheDir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(records(1, 2, 1, 10), false)
	f.Add(records(1, 2, 2, 100), true)
	f.Add([]byte("short"), false)
	f.Fuzz(func(t *testing.T, contents []byte, hundred bool) {
		v := Ten
		if hundred {
			v = Hundred
		}
		b, err := parseRecords(bytes.NewReader(contents), v.labelBytes, v.classes)
		if err != nil {
			return
		}
		size := v.labelBytes + pixelBytes
		if len(b.labels) != len(contents)/size || len(contents)%size != 0 || len(b.pix) != len(b.labels)*pixelBytes {
			t.Fatalf("%d labels and %d pixel bytes from %d bytes", len(b.labels), len(b.pix), len(contents))
		}
		for i, label := range b.labels {
			if int(label) >= v.classes || label != contents[i*size+v.labelBytes-1] {
				t.Fatalf("record %d has label %d", i, label)
			}
		}
	})
}
