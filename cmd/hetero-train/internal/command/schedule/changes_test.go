package schedule

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// add adds a change every 20 minutes, from first on. At the time end, each change gets its outcome of outcomes; ""
// means that it gets none.
func add(t *testing.T, c *changes, first, end time.Time, outcomes ...string) {
	t.Helper()
	for i, outcome := range outcomes {
		id, err := c.begin(event{Time: first.Add(time.Duration(i) * 20 * time.Minute), System: "slurm", On: "c1",
			Change: &jobqueue.Change{Job: string(rune('a' + i))}})
		if err != nil {
			t.Fatal(err)
		}
		if outcome != "" {
			if err := c.end(id, end, outcome, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLogOfChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	open := func() *changes {
		t.Helper()
		c, err := openChanges(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	add(t, c, now, now, applied, failed, applied, "") // the process ended after it had begun the last change
	if err := c.end(3, now, undone, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"id":5,"time":"2026-01`) // the process was killed while it wrote this line
	file.Close()
	c = open()
	// At 4:05, the first change is older than an hour. The second change counts, although it was refused.
	if left, _ := c.room(5, now.Add(65*time.Minute)); left != 2 {
		t.Errorf("got room for %d changes, want 2", left)
	}
	// With a limit of 1, all three changes must be older than an hour before another one is allowed.
	if left, next := c.room(1, now.Add(65*time.Minute)); left != 0 || !next.Equal(now.Add(120*time.Minute)) {
		t.Errorf("a limit of 1: got room for %d changes and the next one at %v", left, next)
	}
	var jobs string
	list, elsewhere := c.open("slurm", "c1")
	for _, l := range list {
		jobs += l.Change.Job
	}
	if jobs != "dba" || elsewhere != 0 {
		t.Errorf("got changes of jobs %q to undo and %d of other clusters, want dba and 0", jobs, elsewhere)
	}
	for _, other := range [][2]string{{"slurm", "c2"}, {"slurm", ""}, {"kubernetes", "c1"}} {
		if list, elsewhere := c.open(other[0], other[1]); len(list) != 0 || elsewhere != 3 {
			t.Errorf("%v: got %d changes to undo, and %d of other clusters, want 0 and 3", other, len(list), elsewhere)
		}
	}
	id, err := c.begin(event{Time: now, System: "slurm", Change: &jobqueue.Change{Job: "e"}})
	if err != nil || id != 5 {
		t.Errorf("got change %d, %v, want 5", id, err)
	}
	c.close()
	c = open()
	if len(c.all) != 5 || c.all[4].Change.Job != "e" {
		t.Errorf("after an incomplete line: got %d changes, want 5", len(c.all))
	}
	c.close()
}

// A file that is not a log of changes must stay unchanged, even if it lacks a final newline. A reader must change no
// file.
func TestLogOfChangesKeepsOtherFiles(t *testing.T) {
	const line = `{"id":1,"time":"2026-01-02T03:00:00Z","event":"begins","queue_system":"slurm","change":{"job":"7","name":"","identity":"","nodes":null,"released":false}}`
	const half = `{"id":1,"time":"2026-01-02T03:0`
	for _, c := range []struct {
		name, text, after string
		changes           int
		fault             string
	}{
		{"an empty object", "{}\n", "{}\n", 0, ":1: the line is damaged, or the file is not a log"},
		{"one line of JSON", `{"v100":{"steps":1}}`, `{"v100":{"steps":1}}`, 0, "is not a log of changes"},
		{"the beginning of JSON", `{"v100":{"ste`, `{"v100":{"ste`, 0, "is not a log of changes"},
		{"only a half line", half, half, 0, "is not a log of changes"},
		{"lines of another program", line + "\nhello", line + "\nhello", 1, ":2: the line is damaged"},
		{"a half line", line + "\n" + half, line + "\n", 1, ""},
		{"no newline after a repair", line, line + "\n", 1, ""},
		{"an unknown event", line + "\n" + `{"id":1,"time":"2026-01-02T03:00:00Z","event":"x"}`,
			line + "\n" + `{"id":1,"time":"2026-01-02T03:00:00Z","event":"x"}`, 1, `got event "x"`},
	} {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		check := func(what string, l *changes, err error, want string) {
			t.Helper()
			if (err != nil) != (c.fault != "") || err != nil && (exit.Code(err) != exit.Data ||
				!strings.Contains(err.Error(), c.fault)) || err == nil && len(l.all) != c.changes {
				t.Errorf("%s, %s: got %v, want %d changes, %q", c.name, what, err, c.changes, c.fault)
			}
			if text, _ := os.ReadFile(path); string(text) != want {
				t.Errorf("%s, %s: got the file %q, want %q", c.name, what, text, want)
			}
		}
		l, err := readChanges(path)
		check("read", l, err, c.text)
		l, err = openChanges(t.Context(), path)
		check("open", l, err, c.after)
		if err == nil {
			l.close()
		}
	}
}

// After a rotation, the log must contain the changes of the last hour, and the older file must contain all changes.
func TestLogOfChangesRotates(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "log.jsonl"), filepath.Join(t.TempDir(), "link")
	open := func(path string) *changes {
		t.Helper()
		c, err := openChanges(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.close() })
		return c
	}
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	c := open(link)
	add(t, c, now.Add(-190*time.Minute), now, applied, undone, applied, applied, applied, applied, applied, applied,
		failed, "")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(before))
	if done, err := c.rotate(t.Context(), size+1, now); done || err != nil {
		t.Errorf("a small log: got %v, %v, want no rotation", done, err)
	}
	if done, err := c.rotate(t.Context(), size, now.Add(-100*time.Minute)); done || err != nil {
		t.Errorf("8 of 10 changes are of the last hour: got %v, %v, want no rotation", done, err)
	}
	other := open(rotated(link))
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if done, err := c.rotate(short, size, now); done || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another command uses the other file: got %v, %v, want no rotation", done, err)
	}
	other.close()
	info, err := c.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	// If a process ends here, all changes are in both files.
	if err := replace(rotated(link), before, info); err != nil {
		t.Fatal(err)
	}
	c.close()
	c = open(link)
	if left, _ := c.room(5, now); left != 2 {
		t.Errorf("after half of a rotation: got room for %d changes, want 2", left)
	}
	if done, err := c.rotate(t.Context(), size, now); !done || err != nil {
		t.Fatalf("got %v, %v, want a rotation", done, err)
	}
	if old, err := os.ReadFile(path + ".1"); err != nil || string(old) != string(before) {
		t.Errorf("got the older changes %q, %v, want %q", old, err, before)
	}
	id, err := c.begin(event{Time: now, System: "slurm", On: "c1", Change: &jobqueue.Change{Job: "k"}})
	if err != nil || id != 4 {
		t.Errorf("got change %d, %v, want 4", id, err)
	}
	c.close()
	c = open(link)
	var jobs string
	for _, l := range c.all {
		jobs += l.Change.Job + " " + l.last + ", "
	}
	if want := "h applied, i failed, j begins, k begins, "; jobs != want {
		t.Errorf("got changes %q, want %q", jobs, want)
	}
	if left, _ := c.room(5, now); left != 1 {
		t.Errorf("got room for %d changes, want 1", left)
	}
	for _, v := range []struct {
		on   string
		jobs []string
		want int
	}{{"c1", nil, 6}, {"c1", []string{"c", "h"}, 1}, {"c2", nil, 0}} {
		if list, err := c.older("slurm", v.on, v.jobs); err != nil || len(list) != v.want {
			t.Errorf("%v: got %d older changes, %v, want %d", v, len(list), err, v.want)
		}
	}
	for _, file := range []string{path, path + ".1"} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != 0o660 {
			t.Errorf("%s: got %v, %v, want a file with the mode of the log", file, info, err)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("got a link to %q, %v, want that the link stays", to, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 3 { // two logs and the lock file of the older one
		t.Errorf("got the files %v, %v, want 3", files, err)
	}
}
