package text

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// files returns the contents of the files in a folder, by name.
func files(t testing.TB, folder string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		m[e.Name()] = string(read(t, filepath.Join(folder, e.Name())))
	}
	return m
}

// resumable returns options with sources of all kinds. The result needs many chunks, shards and journal entries.
func resumable(t testing.TB, dir string) Options {
	t.Helper()
	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "{\"text\": \"document %d\"}\n", i)
	}
	return Options{
		Inputs: []string{write(t, dir, "a.txt", []byte(article(200))),
			write(t, dir, "b.jsonl.zst", datatest.Zstd(t, []byte(lines.String()))),
			write(t, dir, "c.txt.gz", datatest.Gzip(t, []byte(article(300))))},
		Tokenizer: tokenizer.GPT2(), ShardTokens: 1500, EvalFraction: 0.2, Separator: []byte{}, chunk: 512,
		journal: 2048,
	}
}

func TestACancelledCallIsContinued(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "whole")
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := files(t, o.Folder)
	for calls := 1; calls < 60; calls += 7 {
		o.Folder = filepath.Join(dir, fmt.Sprint(calls))
		stops := 0
		for {
			ctx, stop := context.WithCancel(t.Context())
			n := 0
			o.Progress = func(done, total int64) {
				if n++; n == calls {
					stop()
				}
			}
			r, err := Tokenize(ctx, o)
			stop()
			if err == nil {
				if stops > 0 && !r.Resumed {
					t.Errorf("after %d stops: not resumed", stops)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if stops++; stops > 3 { // later calls run for longer, to reach the next journal entry
				calls += 7
			}
		}
		if got := files(t, o.Folder); stops == 0 || !maps.Equal(got, want) {
			t.Errorf("stopped after %d chunks, %d times: got %v, want %v", calls, stops, slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
	}
}

// The test starts its own binary as a second process, which kills itself with SIGKILL.
func TestAKilledProcessIsContinued(t *testing.T) {
	if own := os.Getenv("TOKENIZE_AND_DIE"); own != "" {
		dir := filepath.Join(own, "second") // a killed process does not remove its t.TempDir
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		o := resumable(t, dir)
		o.Inputs = []string{filepath.Join(own, "a.txt"), filepath.Join(own, "b.jsonl.zst"),
			filepath.Join(own, "c.txt.gz")}
		o.Folder = filepath.Join(own, "killed")
		n := 0
		o.Progress = func(int64, int64) {
			if n++; n == 25 {
				self, err := os.FindProcess(os.Getpid())
				if err != nil {
					panic(err)
				}
				self.Kill()
			}
		}
		if _, err := Tokenize(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "whole")
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessIsContinued$")
		cmd.Env = append(os.Environ(), "TOKENIZE_AND_DIE="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || kills > 50 {
			t.Fatalf("%v after %d kills: %s", err, kills, out)
		}
		kills++
	}
	if got, want := files(t, filepath.Join(dir, "killed")), files(t, o.Folder); kills == 0 || !maps.Equal(got, want) {
		t.Errorf("killed %d times: got %v, want %v", kills, slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}

func TestACompleteFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "out")
	first, err := Tokenize(t.Context(), o)
	if err != nil || first.Already || first.Resumed {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := Tokenize(t.Context(), o)
	if err != nil || !second.Already || Tokens(second.Train) != Tokens(first.Train) {
		t.Errorf("got %+v, %v", second, err)
	}
	o.ShardTokens++
	if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrSettings) ||
		!strings.Contains(err.Error(), "shard_tokens was 1500, now 1501") {
		t.Errorf("got %v", err)
	}
	foreign := o
	foreign.Folder = t.TempDir()
	write(t, foreign.Folder, "train.bin", []byte{1, 0})
	if _, err := Tokenize(t.Context(), foreign); !errors.Is(err, ErrSettings) ||
		!strings.Contains(err.Error(), "train.bin, which another program or version wrote") {
		t.Errorf("got %v", err)
	}
}

func TestAChangedSourceIsNoticed(t *testing.T) {
	dir := t.TempDir()
	o := Options{Inputs: []string{write(t, dir, "a.txt", []byte(article(50)))}, Folder: filepath.Join(dir, "out"),
		Tokenizer: tokenizer.Bytes()}
	if _, err := Tokenize(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.txt", bytes.Replace([]byte(article(50)), []byte("Line 49"), []byte("Line 50"), 1))
	if _, err := Tokenize(t.Context(), o); !errors.Is(err, ErrSettings) {
		t.Errorf("got %v", err)
	}
}

func TestDamagedManifestsAndJournals(t *testing.T) {
	for _, name := range []string{manifestName, journalName} {
		for _, contents := range []string{"", "{", `{"version": 2}`, "[]"} {
			dir := t.TempDir()
			in := write(t, dir, "a.txt", []byte("text"))
			out := t.TempDir()
			write(t, out, name, []byte(contents))
			_, err := Tokenize(t.Context(), Options{Inputs: []string{in}, Folder: out, Tokenizer: tokenizer.Bytes()})
			var f *data.Fault
			if !errors.As(err, &f) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %q: got %v", name, contents, err)
			}
		}
	}
}

func TestAnImpossibleJournalIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := resumable(t, dir)
	o.Folder = filepath.Join(dir, "out")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	o.Progress = func(int64, int64) {
		if n++; n == 10 {
			stop()
		}
	}
	if _, err := Tokenize(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	path := filepath.Join(o.Folder, journalName)
	good := read(t, path)
	for from, to := range map[string]string{`"source": 0`: `"source": 4`, `"offset": `: `"offset": -`,
		`"tokens": `: `"tokens": -1`} {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("no %s in %s", from, good)
		}
		write(t, o.Folder, journalName, bytes.Replace(good, []byte(from), []byte(to), 1))
		var f *data.Fault
		if _, err := Tokenize(t.Context(), o); !errors.As(err, &f) ||
			!strings.Contains(err.Error(), "is not in the text") {
			t.Errorf("%s: got %v", to, err)
		}
	}
}
