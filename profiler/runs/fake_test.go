package runs

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// fakeRun writes files to the folder of a run.
type fakeRun struct {
	t       *testing.T
	dir     string
	writers []*runtime.Writer
}

func newFakeRun(t *testing.T, parent, name string, ranks int) *fakeRun {
	t.Helper()
	f := &fakeRun{t: t, dir: filepath.Join(parent, name)}
	f.write(resolvedFile, "[model]\nname = \"simple_cnn\"\n[data]\ndataset = \"synthetic_image\"\nbatch_size = 64\n[balance]\npolicy = \"hybrid\"\n[profile]\nenabled = true\n")
	if err := os.MkdirAll(filepath.Join(f.dir, logsFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w, _, err := runtime.Open(filepath.Join(f.dir, logsFolder, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		f.writers = append(f.writers, w)
	}
	return f
}

func (f *fakeRun) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

// record returns a record whose values depend on step and rank. Step 777 is very slow.
func record(rank int, step int64) runtime.Record {
	r := runtime.Record{Iteration: step, Rank: rank, BatchSize: int64(40 - 16*rank%32),
		Timestamp: time.Unix(1700000000+step, 0), Values: telemetry.Values{telemetry.Loss: 2 / float64(step),
			telemetry.Accuracy: math.NaN(), telemetry.LearningRate: 0.1, telemetry.LossScale: 1},
		DataLoading: time.Microsecond, Forward: 10 * time.Millisecond, Backward: 20 * time.Millisecond,
		Communication:       time.Duration(rank) * time.Millisecond,
		CommunicationHidden: time.Millisecond, Bytes: 1 << 20, Optimizer: time.Millisecond,
		Telemetry: telemetry.Unknown()}
	if step == 777 {
		r.Forward = 3 * time.Second
	}
	return r
}

func (f *fakeRun) steps(from, to int64) {
	f.t.Helper()
	for rank, w := range f.writers {
		for step := from; step <= to; step++ {
			r := record(rank, step)
			w.Append(&r)
			if step%4096 == 0 {
				w.Flush()
			}
		}
		if err := w.Flush(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// fresh adds a record with the current time.
func (f *fakeRun) fresh(step int64) {
	f.t.Helper()
	r := record(0, step)
	r.Timestamp = time.Now()
	f.writers[0].Append(&r)
	if err := f.writers[0].Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// open opens a run and reads all records.
func open(t *testing.T, parent, name string) *Run {
	t.Helper()
	run := opened(t, parent, name)
	update(run)
	return run
}

// opened opens a run without reading its records.
func opened(t *testing.T, parent, name string) *Run {
	t.Helper()
	run, err := folderOf(t, parent).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

// folderOf opens a folder of runs.
func folderOf(t *testing.T, dir string) *Folder {
	t.Helper()
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return folder
}

// listOf lists the runs in a folder.
func listOf(t *testing.T, dir string) Listing {
	t.Helper()
	list, err := folderOf(t, dir).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// partlyRead opens a run, and reads only a part of its records.
func partlyRead(t *testing.T, parent, name string) *Run {
	t.Helper()
	run := opened(t, parent, name)
	if !run.Update(1) {
		t.Fatal("got all records at once, want a part")
	}
	return run
}

func update(run *Run) {
	for run.Update(1 << 20) {
	}
}

func figures(t *testing.T, run *Run, q Query) *Figures {
	t.Helper()
	f, err := run.Figures(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// line returns the values of a column for one rank.
func (f *Figures) line(t *testing.T, column string, rank int) Line {
	t.Helper()
	at := slices.IndexFunc(f.Lines, func(l Line) bool { return l.Column == column && l.Rank == rank })
	if at < 0 {
		t.Fatalf("no line %s of rank %d", column, rank)
	}
	return f.Lines[at]
}
