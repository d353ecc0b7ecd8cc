package experiment

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

func TestHeldByFollowsTheLockOfARun(t *testing.T) {
	dir := t.TempDir()
	options := Options{OutputDir: dir, Name: "a", Resume: ResumeAuto}
	run, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(run.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, want := range []bool{true, false} {
		holder, held, err := HeldBy(root)
		if err != nil || holder.PID != os.Getpid() || held == nil || *held != want {
			t.Fatalf("got %+v, held %v and error %v, want this process and held = %v", holder, held, err, want)
		}
		run.Close()
	}
	again, err := Open(options) // HeldBy took no lock
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	empty, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if _, _, err := HeldBy(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a lock file: got %v, want fs.ErrNotExist", err)
	}
}
