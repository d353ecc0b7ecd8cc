package schedule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

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
	for i, end := range []string{applied, failed, applied, ""} { // the process ended after the last begins
		id, err := c.begin(event{Time: now.Add(time.Duration(i) * 20 * time.Minute), System: "slurm", On: "c1",
			Change: &jobqueue.Change{Job: string(rune('a' + i))}})
		if err != nil {
			t.Fatal(err)
		}
		if end != "" {
			if err := c.end(id, now, end, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
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
	file.WriteString(`{"id":5,"time":"2026-01`) // the process was killed while it wrote
	file.Close()
	c = open()
	// At 4:05, the first change is older than an hour. The second one was refused, and counts.
	if left, _ := c.room(5, now.Add(65*time.Minute)); left != 2 {
		t.Errorf("got room for %d changes, want 2", left)
	}
	// With a limit of 1, all three changes must be older than an hour.
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

// A file that is not a log of changes must stay as it is, also without a final newline. A reader must change no file.
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

// A rotated log must have the changes of the last hour, and the other file all changes.
func TestLogOfChangesRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
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
	c := open(path)
	for i, end := range []string{applied, undone, applied, failed, ""} {
		id, err := c.begin(event{Time: now.Add(time.Duration(i*20-90) * time.Minute), System: "slurm", On: "c1",
			Change: &jobqueue.Change{Job: string(rune('a' + i))}})
		if err != nil {
			t.Fatal(err)
		}
		if end != "" {
			if err := c.end(id, now, end, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := c.rotate(int64(len(before))+1, now); done || err != nil {
		t.Errorf("a small log: got %v, %v, want no rotation", done, err)
	}
	if done, err := c.rotate(int64(len(before)), now); !done || err != nil {
		t.Fatalf("got %v, %v, want a rotation", done, err)
	}
	if old, err := os.ReadFile(rotated(path)); err != nil || string(old) != string(before) {
		t.Errorf("got the older changes %q, %v, want %q", old, err, before)
	}
	id, err := c.begin(event{Time: now, System: "slurm", On: "c1", Change: &jobqueue.Change{Job: "f"}})
	if err != nil || id != 4 {
		t.Errorf("got change %d, %v, want 4", id, err)
	}
	c.close()
	c = open(path)
	var jobs string
	for _, l := range c.all {
		jobs += l.Change.Job + " " + l.last + ", "
	}
	if want := "c applied, d failed, e begins, f begins, "; jobs != want {
		t.Errorf("got changes %q, want %q", jobs, want)
	}
	if left, _ := c.room(5, now); left != 1 {
		t.Errorf("got room for %d changes, want 1", left)
	}
	if list, _ := open(rotated(path)).open("slurm", "c1"); len(list) != 4 {
		t.Errorf("got %d older changes to undo, want 4", len(list))
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 4 { // two logs with their locks
		t.Errorf("got the files %v, %v, want 4", files, err)
	}
}
