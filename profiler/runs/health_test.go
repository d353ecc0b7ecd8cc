package runs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

func healthOf(t *testing.T, dir, name string) Health {
	t.Helper()
	h, err := folderOf(t, dir).Health(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// change edits a JSON file of a run.
func change(t *testing.T, path string, edit func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatalf("%s: %v: %s", path, err, text)
	}
	edit(fields)
	if text, err = json.Marshal(fields); err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestHealthOfARun(t *testing.T) {
	const oldest = 10 * time.Minute
	for _, c := range []struct {
		name      string
		record    time.Duration // age of the newest record; 0: there is none
		start     time.Duration // age of the newest start; 0: no process has begun
		elsewhere bool          // the process that trains is in another container
		ended     *experiment.Result
		want      Kind
		unhealthy string // "": healthy
	}{
		{"works", time.Minute, time.Hour, false, nil, Running, ""},
		{"hangs", time.Hour, 2 * time.Hour, false, nil, Running, "is 1h0m0s old, want at most 10m0s"},
		{"works-elsewhere", 5 * time.Minute, time.Hour, true, nil, Unknown, ""},
		{"hangs-elsewhere", time.Hour, 2 * time.Hour, true, nil, Unknown, "is 1h0m0s old, want at most 10m0s"},
		{"resumed", time.Hour, time.Minute, false, nil, Running, ""},
		{"resumed-elsewhere", time.Hour, 5 * time.Minute, true, nil, Unknown, ""},
		{"resume-hangs", 2 * time.Hour, time.Hour, false, nil, Running, "is 1h0m0s old"},
		{"starts", 0, time.Minute, false, nil, Running, ""},
		{"starts-elsewhere", 0, time.Minute, true, nil, Unknown, ""},
		{"start-hangs", 0, time.Hour, false, nil, Running, "began 1h0m0s ago and has no record yet"},
		{"never-began", 0, 0, false, nil, Crashed, "its state is crashed, want running or finished"},
		{"finished", 50 * time.Hour, 90 * time.Hour, false, &experiment.Result{Steps: 1}, Finished, ""},
		{"stopped", time.Minute, time.Hour, true, &experiment.Result{Steps: 1, Exit: 75}, Stopped, "its state is stopped"},
	} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, c.name, 1)
		if c.record > 0 {
			f.writers[0].Close()
			text, err := json.Marshal(runtime.Record{Iteration: 1, Timestamp: time.Now().Add(-c.record)})
			if err != nil {
				t.Fatal(err)
			}
			f.write(filepath.Join(logsFolder, runtime.FileName(0)), "[\n"+string(text)+",\n")
		}
		if c.start > 0 {
			run := began(t, dir, c.name)
			if c.ended != nil {
				write(t, run, *c.ended)
				run.Close()
			} else {
				t.Cleanup(func() { run.Close() })
			}
			since := time.Now().Add(-c.start)
			for _, name := range []string{lockFile, ".start"} {
				change(t, filepath.Join(dir, c.name, name), func(fields map[string]any) {
					fields["since"] = since
					if c.elsewhere {
						fields["host"] = "another-host"
					}
				})
			}
		}
		h := healthOf(t, dir, c.name)
		// The age of the oldest record may have grown by seconds, because the machine is busy.
		why := regexp.MustCompile(`1h0m\d+s`).ReplaceAllString(h.Unhealthy(oldest), "1h0m0s")
		if h.State.Kind != c.want || (why == "") != (c.unhealthy == "") || !strings.Contains(why, c.unhealthy) {
			t.Errorf("%s: got %+v and %q, want %s and %q", c.name, h, why, c.want, c.unhealthy)
		}
	}
}

// A run without records must count as healthy while its process runs.
func TestHealthOfARunWithoutRecords(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "silent", 0)
	f.write(resolvedFile, "[profile]\nenabled = false\n")
	run := began(t, dir, "silent")
	defer run.Close()
	start, since := filepath.Join(dir, "silent", ".start"), time.Now().Add(-time.Hour)
	for _, name := range []string{start, filepath.Join(dir, "silent", lockFile)} {
		change(t, name, func(fields map[string]any) { fields["since"] = since })
	}
	if why := healthOf(t, dir, "silent").Unhealthy(time.Minute); why != "" {
		t.Errorf("got %q, want healthy", why)
	}
	for _, name := range []string{start, filepath.Join(dir, "silent", lockFile)} {
		change(t, name, func(fields map[string]any) { fields["host"] = "another-host" })
	}
	if why := healthOf(t, dir, "silent").Unhealthy(time.Minute); !strings.Contains(why, "profile.enabled is false") {
		t.Errorf("elsewhere: got %q, want the setting as the reason", why)
	}
}

// A probe must not become slower with the number of steps of a run.
func TestHealthReadsOnlyTheEndOfTheRecords(t *testing.T) {
	if _, err := os.Stat("/proc/self/io"); err != nil {
		t.Skip("the system does not count the bytes that a process reads")
	}
	dir := t.TempDir()
	f := newFakeRun(t, dir, "long", 1)
	f.steps(1, 5000)
	f.writers[0].Close()
	records, err := os.Stat(filepath.Join(f.dir, logsFolder, runtime.FileName(0)))
	if err != nil {
		t.Fatal(err)
	}
	before := bytesRead(t)
	h := healthOf(t, dir, "long")
	if got, all := bytesRead(t)-before, records.Size(); h.Step != 5000 || all < 1<<20 || got > all/4 {
		t.Errorf("got step %d after %d bytes, want step 5000 after a small part of %d bytes", h.Step, got, all)
	}
}

// bytesRead returns the number of bytes that this process has read so far.
func bytesRead(t *testing.T) (sum int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &sum); err != nil {
		t.Fatalf("/proc/self/io: %v: %s", err, text)
	}
	return sum
}
