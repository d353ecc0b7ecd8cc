package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
)

// openedBy opens the folder of a run as a command does, but does not begin to train.
func openedBy(t *testing.T, dir, name string) *experiment.Run {
	t.Helper()
	run, err := experiment.Open(experiment.Options{OutputDir: dir, Name: name, Named: true,
		Resume: experiment.ResumeAuto, Steps: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// began opens the folder of a run, and begins to train.
func began(t *testing.T, dir, name string) *experiment.Run {
	t.Helper()
	run := openedBy(t, dir, name)
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	return run
}

func write(t *testing.T, run *experiment.Run, r experiment.Result) {
	t.Helper()
	if err := run.WriteResult(r); err != nil {
		t.Fatal(err)
	}
}

// The state of a run must follow from the actions of its own processes. Later commands and clocks must not change it.
func TestLaterCommandsDoNotChangeTheState(t *testing.T) {
	long := time.Now().Add(-100 * time.Hour) // the clock of the machine was wrong, or the run ended long ago
	ended := func(r experiment.Result) func(*testing.T, string, string) {
		r.Steps, r.Ended = 20, long
		return func(t *testing.T, dir, name string) {
			run := began(t, dir, name)
			write(t, run, r)
			run.Close()
		}
	}
	resumed := func(t *testing.T, dir, name string) *experiment.Run {
		ended(experiment.Result{Exit: 75})(t, dir, name)
		return began(t, dir, name)
	}
	befores := []struct {
		name   string
		happen func(t *testing.T, dir, name string)
		want   Kind
	}{
		{"finished", ended(experiment.Result{}), Finished},
		{"gave-up", ended(experiment.Result{GaveUp: "no progress"}), Finished},
		{"out-of-time", ended(experiment.Result{OutOfTime: true}), Stopped},
		{"terminated", ended(experiment.Result{Exit: 75}), Stopped},
		{"interrupted", ended(experiment.Result{Exit: 130}), Stopped},
		{"terminated-unsaved", ended(experiment.Result{Exit: 143}), Stopped},
		{"failed", ended(experiment.Result{Exit: 5, Error: "rank 1 was lost"}), Failed},
		{"killed", func(t *testing.T, dir, name string) { began(t, dir, name).Close() }, Crashed},
		{"running", func(t *testing.T, dir, name string) {
			run := began(t, dir, name)
			t.Cleanup(func() { run.Close() })
		}, Running},
		{"resumed", func(t *testing.T, dir, name string) {
			run := resumed(t, dir, name)
			t.Cleanup(func() { run.Close() })
		}, Running},
		{"resumed-killed", func(t *testing.T, dir, name string) { resumed(t, dir, name).Close() }, Crashed},
		{"resumed-finished", func(t *testing.T, dir, name string) {
			run := resumed(t, dir, name)
			write(t, run, experiment.Result{Steps: 20, Ended: long})
			run.Close()
		}, Finished},
	}
	laters := []struct {
		name   string
		happen func(t *testing.T, dir, name string)
	}{
		{"nothing", func(*testing.T, string, string) {}},
		{"a refused or repeated command", func(t *testing.T, dir, name string) { openedBy(t, dir, name).Close() }},
		{"a command that is still checking the folder", func(t *testing.T, dir, name string) {
			run := openedBy(t, dir, name)
			t.Cleanup(func() { run.Close() })
		}},
		{"a report and an evaluation in the folder", func(t *testing.T, dir, name string) {
			if err := os.WriteFile(filepath.Join(dir, name, "results", "report.md"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"a folder that is read-only", func(t *testing.T, dir, name string) {
			readOnly(t, filepath.Join(dir, name), 0o500)
			t.Cleanup(func() { readOnly(t, filepath.Join(dir, name), 0o700) })
		}},
	}
	for _, before := range befores {
		for _, later := range laters {
			locks := strings.Contains(later.name, "command")
			if before.want == Running && locks {
				continue // the lock prevents the command from opening the run
			}
			dir := t.TempDir()
			f := newFakeRun(t, dir, before.name, 1)
			f.steps(1, 20)
			before.happen(t, dir, before.name)
			later.happen(t, dir, before.name)
			if state := open(t, dir, before.name).View().State; state.Kind != before.want {
				t.Errorf("%s, then %s: got %+v, want %s", before.name, later.name, state, before.want)
			}
		}
	}
}

func readOnly(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	for _, name := range []string{"results", "."} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Error(err)
		}
	}
}

// If the original run has ended, a copy of its folder on another machine must have the same state. Otherwise, the state
// of the copy is unknown.
func TestStateOfACopiedFolder(t *testing.T) {
	for _, c := range []struct {
		name   string
		result *experiment.Result
		want   Kind
	}{{"finished", &experiment.Result{Steps: 20}, Finished},
		{"stopped", &experiment.Result{Steps: 20, Exit: 75}, Stopped}, {"killed", nil, Unknown}} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, c.name, 1)
		f.steps(1, 20)
		run := began(t, dir, c.name)
		if c.result != nil {
			write(t, run, *c.result)
		}
		run.Close()
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{lockFile, ".start"} { // the files then seem to come from another machine
			text, err := os.ReadFile(filepath.Join(dir, c.name, name))
			if err != nil {
				t.Fatal(err)
			}
			f.write(name, strings.ReplaceAll(string(text), `"`+host+`"`, `"another-host"`))
		}
		if state := open(t, dir, c.name).View().State; state.Kind != c.want {
			t.Errorf("%s: got %+v, want %s", c.name, state, c.want)
		}
	}
}

func TestQuarantinedCheckpointsAreNoted(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "run", 1)
	f.write("checkpoints/step-00000020/MANIFEST", "")
	f.write("checkpoints/quarantined-1/reason.txt", "step 20: rank 1 differs\n")
	want := "checkpoints that may be wrong are in checkpoints/quarantined-1: step 20: rank 1 differs"
	if notes := open(t, dir, "run").View().Notes; len(notes) != 1 || notes[0] != want {
		t.Errorf("got %q, want %q", notes, want)
	}
}

// A process may end or begin while its files are read. The run must not get a state that it never had.
func TestAnEndWhileTheFilesAreReadIsSeen(t *testing.T) {
	defer func() { look = useOf }()
	for at := 1; at <= 2; at++ { // the process ends directly before or after this check
		for _, after := range []bool{false, true} {
			dir := t.TempDir()
			f := newFakeRun(t, dir, "run", 1)
			f.steps(1, 20)
			run, looks := began(t, dir, "run"), 0
			end := func() {
				write(t, run, experiment.Result{Steps: 20})
				run.Close()
			}
			look = func(root *os.Root) use {
				if looks++; looks == at && !after {
					end()
				}
				u := useOf(root)
				if looks == at && after {
					end()
				}
				return u
			}
			root, err := os.OpenRoot(filepath.Join(dir, "run"))
			if err != nil {
				t.Fatal(err)
			}
			e := gather(root, Settings{})
			e.steps = 20
			if kind := e.judge().Kind; kind != Finished && !(kind == Running && at == 2 && after) {
				t.Errorf("an end at look %d (after %v): got %s, want finished", at, after, kind)
			}
			root.Close()
			look = useOf
		}
	}
}

// After Refresh, the state of a run must be at least as new as the call.
func TestRefreshSeesTheEndOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "run", 1)
	f.steps(1, 20)
	process := began(t, dir, "run")
	run := open(t, dir, "run")
	run.Refresh()
	if kind := run.View().State.Kind; kind != Running {
		t.Fatalf("got %s, want running", kind)
	}
	version := run.Version()
	write(t, process, experiment.Result{Steps: 20})
	process.Close()
	time.Sleep(refreshPause)
	run.Refresh()
	if kind := run.View().State.Kind; kind != Finished || run.Version() == version {
		t.Errorf("got %s and version %d, want finished and another version than %d", kind, run.Version(), version)
	}
}
