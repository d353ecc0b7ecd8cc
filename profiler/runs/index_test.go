package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// indexed opens a run with an index in the folder indexes.
func indexed(t *testing.T, parent, name, indexes string) *Run {
	t.Helper()
	folder, err := OpenFolder(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	folder.Indexes = indexes
	run, err := folder.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

// shown returns all figures that a reader of a run sees, as text.
func shown(t *testing.T, run *Run) string {
	t.Helper()
	v := run.View()
	v.Version = 0
	f := figures(t, run, Query{From: 1, Points: 300, Columns: columnNames()})
	f.Version = 0
	grids := []uint32{crc32.ChecksumIEEE(run.decided.grid.bytes())}
	for _, k := range run.ranks {
		grids = append(grids, crc32.ChecksumIEEE(k.grid.bytes()))
	}
	text, err := json.Marshal([]any{v, f, grids})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// longRun writes a run whose records are long enough for an index.
func longRun(t *testing.T, parent string) *fakeRun {
	t.Helper()
	before := indexEvery
	indexEvery = 100 << 10
	t.Cleanup(func() { indexEvery = before })
	f := newFakeRun(t, parent, "a", 2)
	f.steps(1, 2100) // more steps than a grid has cells
	f.write(filepath.Join(logsFolder, balanceFile), strings.Join([]string{
		`{"step":10,"policy":"hybrid","shares":[40,24],"next":[44,20],"changed":true,"reason":"r","step_seconds":0.1,"share_of_oracle":0,"ranks":[{"health":"sick","cause":"network"},{"health":"healthy"}]}`,
		`{"step":20,"policy":"hybrid","shares":[44,20],"next":[44,20],"step_seconds":0,"outcome":{"step":10,"predicted":1.1,"achieved":1.2},"ranks":[{"health":"healthy"},{"health":"slow type"}]}`,
		`damaged`}, "\n")+"\n")
	f.write(filepath.Join(logsFolder, runtime.EventsFile), strings.Join([]string{
		`{"step":0,"time":"2026-01-02T03:04:05Z","start":{"program":"p","ranks":2,"batch_size":64,"unit":"img","units_per_sample":1}}`,
		`{"step":100,"time":"2026-01-02T03:05:05Z","evaluation":{"samples":10,"loss":0,"metrics":{"top1":0},"seconds":1}}`,
		`{"step":150,"time":"2026-01-02T03:05:05Z","checkpoint":{"seconds":1}}`,
		`{"step":50,"time":"2026-01-02T03:05:05Z","bottleneck":{"bound":"data-bound","rank":0,"step_seconds":1,"parts_seconds":{"data":0.3,"useful":0.7}}}`}, "\n")+"\n")
	return f
}

func TestARunContinuesWithItsIndex(t *testing.T) {
	parent, indexes := t.TempDir(), filepath.Join(t.TempDir(), "runs")
	f := longRun(t, parent)
	first := indexed(t, parent, "a", indexes)
	update(first)
	if err := first.SaveIndex(); err != nil {
		t.Fatal(err)
	}
	want := shown(t, first)
	again := indexed(t, parent, "a", indexes)
	if more := again.Update(1); more {
		t.Error("an index of all records: more records are left to read")
	}
	if got := shown(t, again); got != want {
		t.Errorf("with an index: got %s, want %s", got, want)
	}
	// These records are added after the index was written.
	f.steps(2101, 2200)
	update(again)
	later := indexed(t, parent, "a", indexes)
	update(later)
	for name, run := range map[string]*Run{"of the same process": again, "of a later process": later} {
		if got, want := shown(t, run), shown(t, open(t, parent, "a")); got != want {
			t.Errorf("records after the index, %s: got %s, want %s", name, got, want)
		}
	}
}

func TestAStaleIndexHasNoEffect(t *testing.T) {
	logs := func(parent, name string) string { return filepath.Join(parent, "a", logsFolder, name) }
	rewrite := func(t *testing.T, path string, change func([]byte) []byte) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(bytes.Clone(text)), 0o644)
		}
		if err == nil { // the times of files may be coarse, so the test changes them
			err = os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, parent, index string){
		"cut": func(t *testing.T, _, index string) {
			rewrite(t, index,
				func(b []byte) []byte { return b[:len(b)/2] })
		},
		"empty": func(t *testing.T, _, index string) { rewrite(t, index, func([]byte) []byte { return nil }) },
		"damaged": func(t *testing.T, _, index string) {
			rewrite(t, index, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"of another program": func(t *testing.T, _, index string) {
			before := indexLayout
			indexLayout = "0"
			t.Cleanup(func() { indexLayout = before })
		},
		"of records that were changed": func(t *testing.T, parent, _ string) {
			rewrite(t, logs(parent, runtime.FileName(1)), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"batch_size":24`), []byte(`"batch_size":25`), 1)
			})
		},
		"of records that were cut": func(t *testing.T, parent, _ string) {
			rewrite(t, logs(parent, runtime.FileName(0)),
				func(b []byte) []byte { return append(b[:bytes.LastIndexByte(b[:len(b)-600], ',')], "\n]\n"...) })
		},
		"of records that a resumed run replaced": func(t *testing.T, parent, _ string) {
			rewrite(t, logs(parent, runtime.FileName(0)), func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte(`"timestamp":17`), []byte(`"timestamp":170`))
			})
		},
		"of decisions that were replaced": func(t *testing.T, parent, _ string) {
			rewrite(t, logs(parent, balanceFile),
				func(b []byte) []byte { return append([]byte(`{"step":1,"shares":[1],"next":[1]}`+"\n"), b...) })
		},
		"of a missing file": func(t *testing.T, parent, _ string) {
			if err := os.Remove(logs(parent, runtime.EventsFile)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent, indexes := t.TempDir(), t.TempDir()
			longRun(t, parent)
			first := indexed(t, parent, "a", indexes)
			update(first)
			if err := first.SaveIndex(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(indexes, "*"+indexSuffix))
			if err != nil || len(files) != 1 {
				t.Fatalf("got the indexes %v, %v, want one", files, err)
			}
			change(t, parent, files[0])
			again := indexed(t, parent, "a", indexes)
			if more := again.Update(1); !more {
				t.Error("no records are left to read")
			}
			update(again)
			if got, want := shown(t, again), shown(t, open(t, parent, "a")); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestAFolderKeepsTheNewestIndexes(t *testing.T) {
	dir := t.TempDir()
	// The oldest index has a time in the future, because the clock of its machine was wrong.
	for i := range mostIndexes + 3 {
		path := filepath.Join(dir, string(rune('A'+i))+indexSuffix)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(int64(1e9+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"other", "A.index.1.tmp", "A.index.2.tmp", "other.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "A.index.1.tmp"), time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	names := func() (names []string) {
		t.Helper()
		if err := dropIndexes(dir, "A"+indexSuffix); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			names = append(names, e.Name())
		}
		return names
	}
	got := names()
	if len(got) != mostIndexes+3 || !slices.Equal(got[:3], []string{"A.index", "A.index.2.tmp", "E.index"}) {
		t.Errorf("got %v, want the new index, the newest %d others, the one that is being written and the other files",
			got, mostIndexes-1)
	}
	if err := os.Truncate(filepath.Join(dir, "E"+indexSuffix), mostIndexesBytes+1); err != nil {
		t.Fatal(err)
	}
	if got := names(); slices.Contains(got, "E.index") || len(got) != mostIndexes+2 {
		t.Errorf("one index exceeds the limit of all: got %v, want the others", got)
	}
}

func TestAnIndexOfAnotherVersionOfTheProgramHasNoEffect(t *testing.T) {
	parent, indexes := t.TempDir(), t.TempDir()
	longRun(t, parent)
	folder, err := OpenFolder(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	folder.Indexes = indexes
	for i, program := range []string{"program 1.0", "program 1.0", "program 1.1"} {
		folder.Program = program
		run, err := folder.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		if more := run.Update(1); more != (i != 1) {
			t.Errorf("%s, start %d: records are left to read: %v", program, i, more)
		}
		update(run)
		if err := run.SaveIndex(); err != nil {
			t.Error(err)
		}
		run.Close()
	}
}

func TestARunIsReadWhileItsIndexIsWritten(t *testing.T) {
	parent, indexes := t.TempDir(), t.TempDir()
	f := longRun(t, parent)
	run := indexed(t, parent, "a", indexes)
	update(run)
	want := shown(t, run)
	before := encodeIndex
	t.Cleanup(func() { encodeIndex = before })
	encodeIndex = func(w io.Writer, x *index) error {
		read := make(chan struct{})
		go func() {
			defer close(read)
			run.View()
			f.steps(2101, 2110) // these steps must not change the index
			file, err := os.OpenFile(filepath.Join(parent, "a", logsFolder, balanceFile), os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = file.WriteString(`{"step":2105,"policy":"hybrid","shares":[44,20],"next":[44,20],` +
					`"outcome":{"step":10,"predicted":1,"achieved":9}}` + "\n")
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				t.Error(err)
			}
			run.Update(1 << 20)
		}()
		select {
		case <-read:
		case <-time.After(time.Minute):
			return errors.New("a view and an update wait for the index")
		}
		return before(w, x)
	}
	if err := run.SaveIndex(); err != nil {
		t.Fatal(err)
	}
	x, _, err := readIndex(run.indexPath)
	if err != nil || x.Ranks[0].Last.Iteration != 2100 || x.Decided.Changes.List[0].Outcome.Achieved == nil ||
		*x.Decided.Changes.List[0].Outcome.Achieved != 1.2 {
		t.Errorf("got %v, want the index of the time before, whose newest step is 2100", err)
	}
	if shown(t, run) == want {
		t.Error("the update during the write has no effect")
	}
}

// A large index must not be written again after each 8 MiB of records.
func TestALargeIndexIsWrittenLessOften(t *testing.T) {
	parent, indexes := t.TempDir(), t.TempDir()
	f := longRun(t, parent)
	run := indexed(t, parent, "a", indexes)
	indexEvery = 1000
	save := func() (os.FileInfo, int64) {
		t.Helper()
		update(run)
		if err := run.SaveIndex(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(run.indexPath)
		if err != nil {
			t.Fatal(err)
		}
		return info, run.progress()
	}
	first, at := save()
	f.steps(2101, 2200)
	second, later := save()
	if later-at < indexEvery || later-at > indexGrowth*first.Size() || !os.SameFile(first, second) {
		t.Errorf("after %d bytes of records: an index of %d bytes was written again", later-at, first.Size())
	}
	run = indexed(t, parent, "a", indexes) // a later process opens the run
	if third, _ := save(); !os.SameFile(first, third) {
		t.Error("a later process has written the index at once")
	}
	last := int64(2200)
	for run.progress()-at < indexGrowth*first.Size() {
		f.steps(last+1, last+2000)
		last += 2000
		update(run)
	}
	if fourth, _ := save(); os.SameFile(first, fourth) {
		t.Error("after four times the bytes of the index: no index was written")
	}
}

// A process that has started with other ranks may have computed no step yet.
func TestAnIndexKeepsTheSharesOfTheNewestStep(t *testing.T) {
	parent, indexes := t.TempDir(), t.TempDir()
	f := longRun(t, parent)
	start := `{"step":%d,"time":"2026-01-02T03:04:05Z","start":{"program":"p","ranks":%d,"batch_size":64,"unit":"img","units_per_sample":1}}` +
		"\n"
	f.write(filepath.Join(logsFolder, runtime.EventsFile),
		fmt.Sprintf(start, 0, 1)+fmt.Sprintf(start, 1000, 2)+fmt.Sprintf(start, 2100, 3))
	first := indexed(t, parent, "a", indexes)
	update(first)
	if err := first.SaveIndex(); err != nil {
		t.Fatal(err)
	}
	again := indexed(t, parent, "a", indexes)
	update(again)
	for i, k := range again.ranks[:2] {
		if len(k.shares) == 0 || len(k.shares) != len(first.ranks[i].shares) {
			t.Errorf("rank %d: got the shares %v, want those of the index, %v", i, k.shares, first.ranks[i].shares)
		}
	}
}

// BenchmarkOpenLongRun opens a run of 200,000 steps of 2 ranks, with and without its index, and reads its figures.
func BenchmarkOpenLongRun(b *testing.B) {
	parent, indexes := b.TempDir(), b.TempDir()
	dir := filepath.Join(parent, "a", logsFolder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for rank := range 2 {
		w, _, err := runtime.Open(filepath.Join(dir, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for step := range int64(200_000) {
			r := record(rank, step+1)
			if w.Append(&r); step%4096 == 0 {
				if err := w.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	folder, err := OpenFolder(parent)
	if err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	for name, with := range map[string]string{"records": "", "index": indexes} {
		folder.Indexes = indexes
		run, err := folder.Open("a")
		if err != nil {
			b.Fatal(err)
		}
		update(run)
		if err := run.SaveIndex(); err != nil {
			b.Fatal(err)
		}
		run.Close()
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				folder.Indexes = with
				run, err := folder.Open("a")
				if err != nil {
					b.Fatal(err)
				}
				update(run)
				if f, err := run.Figures(b.Context(), Query{From: 1, Points: 800,
					Columns: []string{"loss", "throughput"}}); err != nil || len(f.Steps) < 700 {
					b.Fatalf("got %v, %v", f, err)
				}
				run.Close()
			}
		})
	}
}
