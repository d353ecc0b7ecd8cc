package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tailOf returns a Tail of a rank's file in dir. The returned function returns the iterations that the Tail has read
// since the function's last call.
func tailOf(t *testing.T, dir string) (*Tail, func() []int64) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	tail := NewTail(root, FileName(0))
	return tail, func() []int64 {
		t.Helper()
		got := []int64{}
		for {
			more, err := tail.Next(1000, func(_ int64, r *Record) { got = append(got, r.Iteration) })
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				return got
			}
		}
	}
}

func TestTailContinuesAfterTheLastRecord(t *testing.T) {
	dir := t.TempDir()
	tail, read := tailOf(t, dir)
	if got := read(); len(got) != 0 {
		t.Errorf("no file: got records %v, want none", got)
	}
	w, _ := mustOpen(t, filepath.Join(dir, FileName(0)))
	var all []int64
	for _, part := range [][]int64{{}, {1}, {2, 3}, upTo(200)[3:], {}} {
		appendAll(w, part...)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got := read()
		if !slices.Equal(got, append([]int64{}, part...)) {
			t.Errorf("after %d records: got %v, want %v", len(all), got, part)
		}
		all = append(all, part...)
	}
	if tail.Damaged != 0 || tail.Replaced != 0 || !slices.Equal(all, upTo(200)) {
		t.Errorf("got %d damaged lines and %d replaced files, want 0", tail.Damaged, tail.Replaced)
	}
}

func TestTailStartsAgainAfterTheWriterReplacedTheFile(t *testing.T) {
	dir := t.TempDir()
	tail, read := tailOf(t, dir)
	w, _ := mustOpen(t, filepath.Join(dir, FileName(0)))
	appendAll(w, upTo(50)...)
	w.Flush()
	read()
	for _, kept := range []int64{20, 0} { // a resume from step 20, and a start from the beginning
		before := tail.Replaced
		if err := w.Truncate(kept); err != nil {
			t.Fatal(err)
		}
		appendAll(w, kept+1)
		w.Flush()
		if got := read(); !slices.Equal(got, upTo(kept+1)) || tail.Replaced != before+1 {
			t.Errorf("after Truncate(%d) and one record: got %v and %d replaced files", kept, got, tail.Replaced-before)
		}
	}
}

// File systems reuse the inode numbers of deleted files. A Tail must notice a new file with the same number.
func TestTailNoticesAnotherFileWithTheSameNumber(t *testing.T) {
	dir := t.TempDir()
	tail, read := tailOf(t, dir)
	path := filepath.Join(dir, FileName(0))
	first, second := sample(1), sample(2)
	for i, record := range []Record{first, second} {
		text := append(append([]byte("[\n"), record.appendJSON(nil)...), "\n]\n"...)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		file.Write(text)
		file.Close()
		if got := read(); !slices.Equal(got, []int64{int64(i) + 1}) {
			t.Errorf("file %d: got %v", i, got)
		}
	}
	if tail.Replaced != 1 {
		t.Errorf("got %d replaced files, want 1", tail.Replaced)
	}
}

func TestTailWaitsForTheEndOfALineAndCountsDamage(t *testing.T) {
	dir := t.TempDir()
	tail, read := tailOf(t, dir)
	line := func(i int64) string { r := sample(i); return string(r.appendJSON(nil)) }
	text := "[\n" + line(1) + ",\n" + "garbage\n" + strings.Repeat("x", 3*tailChunkBytes) + "\n" + line(2) + ",\n" +
		line(3)
	path := filepath.Join(dir, FileName(0))
	for _, part := range []struct {
		text string
		want []int64
	}{{text[:len(text)-20], []int64{1, 2}}, {text, nil}, {text + "\n]\n", []int64{3}}} {
		if err := os.WriteFile(path, []byte(part.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := read(); !slices.Equal(got, part.want) && len(got)+len(part.want) > 0 {
			t.Errorf("got %v, want %v", got, part.want)
		}
	}
	if tail.Damaged < 2 || tail.Replaced != 0 {
		t.Errorf("got %d damaged lines and %d replaced files, want at least 2 and 0", tail.Damaged, tail.Replaced)
	}
}

// A reader of many files reads them in turns, so a damaged file must not take longer than a valid one.
func TestDamagedLinesCountTowardsTheLimit(t *testing.T) {
	dir := t.TempDir()
	tail, _ := tailOf(t, dir)
	last := sample(1)
	text := "[\n" + strings.Repeat("garbage\n", 100000) + strings.Repeat("x", 10*tailChunkBytes) + "\n" +
		string(last.appendJSON(nil)) + "\n]\n"
	if err := os.WriteFile(filepath.Join(dir, FileName(0)), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for more, calls := true, 0; more; calls++ {
		before := tail.Offset()
		var err error
		if more, err = tail.Next(1000, func(_ int64, r *Record) { got = append(got, r.Iteration) }); err != nil {
			t.Fatal(err)
		}
		if read := tail.Offset() - before; read > 2*tailChunkBytes || calls > len(text)/1000 {
			t.Fatalf("call %d read %d bytes, want at most two chunks, in at most %d calls", calls, read, len(text)/1000)
		}
	}
	if !slices.Equal(got, []int64{1}) || tail.Damaged <= 100000 {
		t.Errorf("got records %v and %d damaged lines, want record 1 and more than 100000", got, tail.Damaged)
	}
}

func TestReadFromAnOffset(t *testing.T) {
	dir := t.TempDir()
	w, _ := mustOpen(t, filepath.Join(dir, FileName(0)))
	appendAll(w, upTo(300)...)
	w.Flush()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	offsets := map[int64]int64{}
	if _, err := NewTail(root, FileName(0)).Next(1<<20, func(at int64, r *Record) { offsets[r.Iteration] = at }); err !=
		nil {
		t.Fatal(err)
	}
	for _, from := range []int64{1, 2, 150, 300} {
		var got []int64
		err := ReadFrom(root, FileName(0), offsets[from], func(r *Record) bool {
			got = append(got, r.Iteration)
			return len(got) < 3
		})
		if want := upTo(300)[from-1 : min(300, from+2)]; err != nil || !slices.Equal(got, want) {
			t.Errorf("from %d: got %v and error %v, want %v", from, got, err, want)
		}
	}
}

// A sparse file needs no disk space, but a Tail would take minutes to read it. The dashboard's server, which follows
// the run, would read it again and again.
func TestTailsRefuseASparseFile(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	records, lines := NewTail(root, "records"), NewLineTail(root, "lines")
	for name, next := range map[string]func() (bool, error){
		"records": func() (bool, error) { return records.Next(8<<20, func(int64, *Record) {}) },
		"lines":   func() (bool, error) { return lines.Next(8<<20, func([]byte) {}) },
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("[\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 60<<30); err != nil {
			t.Fatal(err)
		}
		calls, more := 0, true
		for err = nil; more && err == nil && calls < 200; calls++ {
			more, err = next()
		}
		if err == nil || !strings.Contains(err.Error(), "256 MiB") {
			t.Fatalf("%s: got %v after %d calls, want an error", name, err, calls)
		}
		if again, err := next(); again || err == nil { // the file was not replaced
			t.Errorf("%s: got %v, %v, want the same error", name, again, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("[\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := next(); err != nil {
			t.Errorf("%s: another file: %v", name, err)
		}
	}
	if got := records.Offset() + lines.Offset(); got > 4 {
		t.Errorf("got %d bytes read of the new files, want at most 4", got)
	}
}
