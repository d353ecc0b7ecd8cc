package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If the log folder belongs to another run, OpenLogs must refuse it.
func TestLogsOfAnotherRunAreRefused(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	run := mustOpen(t, Options{OutputDir: dir, Name: "mine", Resume: ResumeNone, LogDir: logs})
	defer run.Close()
	foreign := filepath.Join(dir, "foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(folder, logs string) error {
		root, err := os.OpenRoot(folder)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		found, err := OpenLogs(logs, root)
		if err == nil {
			found.Close()
		}
		return err
	}
	if err := open(run.Dir, logs); err != nil {
		t.Errorf("own logs: got %v", err)
	}
	if err := open(foreign, logs); err == nil || !strings.Contains(err.Error(), "belongs to the run in") {
		t.Errorf("logs of another run: got %v, want an error that names the run", err)
	}
	if err := open(foreign, dir); err == nil || !strings.Contains(err.Error(), "--log-dir "+dir) {
		t.Errorf("a folder without an owner: got %v, want an error with --log-dir", err)
	}
}
