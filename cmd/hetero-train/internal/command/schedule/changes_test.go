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
		id, err := c.begin(event{Time: now.Add(time.Duration(i) * 20 * time.Minute), System: "slurm",
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
	file.WriteString(`{"id":5,"event":"beg`) // the process was killed while it wrote
	file.Close()
	c = open()
	// At 4:05, the first change is older than an hour, and the second one was refused.
	left, next := c.room(5, now.Add(65*time.Minute))
	if want := now.Add(100 * time.Minute); left != 3 || !next.Equal(want) {
		t.Errorf("got room for %d changes and the next one at %v, want 3 and %v", left, next, want)
	}
	if left, _ := c.room(1, now.Add(65*time.Minute)); left != 0 {
		t.Errorf("a limit of 1: got room for %d changes", left)
	}
	var jobs string
	for _, l := range c.open("slurm", "") {
		jobs += l.Change.Job
	}
	if jobs != "dba" || len(c.open("kubernetes", "")) != 0 || len(c.open("slurm", "x")) != 0 {
		t.Errorf("got changes of jobs %q to undo, want dba", jobs)
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
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openChanges(t.Context(), path); exit.Code(err) != exit.Data || !strings.Contains(err.Error(), path+":1") {
		t.Errorf("a damaged line: got %v", err)
	}
}
