package observe

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

// fullFile is a file on a full disk: the first writes write half of their data, and fail.
type fullFile struct {
	appendedFile
	refusals int
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.refusals == 0 {
		return f.appendedFile.Write(p)
	}
	f.refusals--
	n, _ := f.appendedFile.Write(p[:len(p)/2])
	return n, syscall.ENOSPC
}

func TestLinesThatAFullDiskTearsAreNotGluedToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "norms.jsonl")
	var said bytes.Buffer
	l, err := OpenLines(nil, "norms", path, 0, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	step := func(n int) { l.Add(map[string]int{"step": n}) }
	step(1)
	l.file = &fullFile{l.file, 2}
	for n := 2; n <= 5; n++ {
		step(n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(clitest.ReadFile(t, path)),
		"{\"step\":1}\n{\"ste\n{\"ste\n{\"step\":4}\n{\"step\":5}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := said.String(); strings.Count(got, "level=WARN") != 1 || strings.Count(got, "lost=2") != 1 {
		t.Errorf("want one warning and how many lines were lost, got\n%s", got)
	}
	if l, err = OpenLines(nil, "norms", path, 4, l.log); err != nil {
		t.Fatal(err)
	}
	if got, err := string(clitest.ReadFile(t, path)), l.Close(); err != nil || got != "{\"step\":1}\n{\"step\":4}\n" {
		t.Errorf("after a resume: got %q, %v", got, err)
	}
}

// On a full disk, fsync and a roll-back can succeed. Only a successful write proves that the disk accepts lines again.
func TestOnlyALineProvesThatTheDiskTakesLines(t *testing.T) {
	var said bytes.Buffer
	l, err := OpenLines(nil, "norms", filepath.Join(t.TempDir(), "norms.jsonl"), 0,
		slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	step := func(n int) { l.Add(map[string]int{"step": n}) }
	step(1)
	l.file = &fullFile{l.file, 1}
	step(2)
	l.sync()
	l.RolledBack(1)
	if strings.Contains(said.String(), "written again") {
		t.Errorf("no line was written since the failure, got\n%s", said.String())
	}
	step(2)
	if err := l.Close(); err != nil || strings.Count(said.String(), "written again") != 1 {
		t.Errorf("%v, want one line about the recovery, got\n%s", err, said.String())
	}
}

// After a failed roll-back, the lines of repeated steps must be removed before the next line is written.
func TestLinesGoOnAfterARollBackThatFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "norms.jsonl")
	l, err := OpenLines(nil, "norms", path, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	step := func(n int) { l.Add(map[string]int{"step": n}) }
	step(1)
	step(2)
	// This folder prevents the program from rewriting the file.
	if err := os.MkdirAll(filepath.Join(path+".tmp", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.RolledBack(1)
	step(2)
	if !l.failed || l.lost != 1 {
		t.Errorf("got failed %v, %d lost, want 1", l.failed, l.lost)
	}
	if err := os.RemoveAll(path + ".tmp"); err != nil {
		t.Fatal(err)
	}
	step(3)
	if got, err := string(clitest.ReadFile(t, path)), l.Close(); err != nil || got != "{\"step\":1}\n{\"step\":3}\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The file contains 200 MiB of zeros, without a line that is long enough to be refused. The program must skip them line
// by line, and must not read them into memory.
func TestLinesOfALongRunAreNotHeldInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "norms.jsonl")
	const sound = "{\"step\":1}\n{\"step\":2}\n"
	if err := os.WriteFile(path, []byte(sound+"{\"step\":3}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 200<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := OpenLines(nil, "norms", path, 2, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, err := string(clitest.ReadFile(t, path)), l.Close(); err != nil || got != sound {
		t.Errorf("got %.100q, %v", got, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 { // two passes, with lines of at most 16 MiB
		t.Errorf("allocated %d bytes, want at most 64 MiB", got)
	}
}

// hungFile is a file on an unresponsive file system.
type hungFile struct {
	appendedFile
	answers chan struct{}
}

func (f *hungFile) Write(p []byte) (int, error) {
	<-f.answers
	return f.appendedFile.Write(p)
}

// The training goroutine must add, flush and remove lines without waiting for the disk.
func TestLinesDoNotWaitForTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "balance.jsonl")
	q := spool.NewQueue(nil)
	l, err := OpenLines(q, "decisions", path, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan struct{})
	l.file = &hungFile{l.file, answers}
	for n := 1; n <= 4; n++ {
		l.Add(map[string]int{"step": n})
	}
	l.sync()
	l.RolledBack(2)
	l.Add(map[string]int{"step": 3})
	close(answers)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	q.Close()
	if got, want := string(clitest.ReadFile(t, path)), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If gradients are not finite, a run returns to a checkpoint and repeats steps. The lines of the first attempt must be
// removed.
func TestNormsOfRepeatedStepsAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), NormsFile)
	l, err := OpenLines(nil, "norms", path, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n := &norms{StepLines: l, line: NormsLine{Params: map[string]normsPart{}}}
	for step := range int64(3) {
		n.StepDone(&train.StepRecord{StepResult: replica.StepResult{Norms: []optim.ParamNorms{{Name: "w"}}},
			Step: step + 1})
	}
	n.RolledBack(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(clitest.ReadFile(t, path)), "\n"); got != 1 {
		t.Errorf("got %d lines, want 1", got)
	}
}
