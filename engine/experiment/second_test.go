package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// settingsOf returns a Compare function. It compares a single setting, whose value is the whole text.
func settingsOf(text string) func(Earlier) ([]Change, error) {
	return func(e Earlier) ([]Change, error) {
		if e.Config == text {
			return nil, nil
		}
		return []Change{{Key: "lr", Old: e.Config, New: text}}, nil
	}
}

// trainedRun creates a run that has trained 20 steps with the settings "old".
func trainedRun(t *testing.T, options Options) {
	t.Helper()
	options.Compare = nil
	run := mustOpen(t, options)
	if err := run.StoreConfig("old", "1.0"); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteResult(Result{Steps: 20}); err != nil {
		t.Fatal(err)
	}
	saveSteps(t, run, 20)
}

func TestARunOfOtherSettingsResumesNothing(t *testing.T) {
	cases := []struct {
		name     string
		settings string
		steps    int64
		named    bool
		want     string // outcome: resumed, finished, moved or refused
	}{
		{"the same", "old", 20, false, "finished"},
		{"the same, named", "old", 20, true, "finished"},
		{"longer", "old", 30, false, "resumed"},
		{"longer, named", "old", 30, true, "resumed"},
		{"without a limit of steps", "old", 0, true, "finished"},
		{"shorter", "old", 10, false, "moved"},
		{"shorter, named", "old", 10, true, "refused"},
		{"other settings", "new", 20, false, "moved"},
		{"other settings, longer", "new", 30, false, "moved"},
		{"other settings, named", "new", 30, true, "refused"},
	}
	for _, c := range cases {
		for _, logs := range []string{"", "logs of all runs"} {
			dir := t.TempDir()
			options := auto(dir)
			options.Named, options.Steps, options.Length = c.named, 20, "train.steps = 20"
			if logs != "" {
				options.LogDir = filepath.Join(dir, "elsewhere")
			}
			trainedRun(t, options)
			var files []string
			if logs != "" {
				files = []string{"rank_0_metrics.json", "curves.csv", "balance.jsonl", "balance_compare.json"}
			}
			for _, name := range files {
				if err := os.WriteFile(filepath.Join(options.LogDir, name), []byte("[]"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			options.Steps, options.Compare = c.steps, settingsOf(c.settings)
			run, err := begun(options)
			got := ""
			var changed *ChangedError
			switch {
			case errors.As(err, &changed):
				got = "refused"
				if (len(changed.Changes) > 0) != (c.settings == "new") ||
					(changed.Steps > 0) != (c.steps > 0 && c.steps < 20) {
					t.Errorf("%s: got %v", c.name, err)
				}
			case err != nil:
				t.Fatalf("%s: %v", c.name, err)
			case run.Finished != nil:
				got = "finished"
			case run.MovedTo != "":
				got = "moved"
				if run.MovedTo != filepath.Join(dir, "demo-1") || run.Changed == nil || run.Checkpoint != nil {
					t.Errorf("%s: got %+v", c.name, run)
				}
				for _, name := range files {
					if _, err := os.Stat(filepath.Join(options.LogDir, "demo-1", name)); err != nil {
						t.Errorf("%s: a log of the old run: %v", c.name, err)
					}
				}
			case run.Checkpoint != nil:
				got = "resumed"
			}
			if got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
			old := filepath.Join(dir, map[bool]string{true: "demo-1", false: "demo"}[got == "moved"])
			if r, err := ReadResult(old); err != nil || r.Steps != 20 {
				t.Errorf("%s: the result of the old run: %+v, %v", c.name, r, err)
			}
			if run != nil {
				run.closeCheckpoint()
				run.Close()
			}
		}
	}
}

func TestAPathWithOtherSettingsNeedsThemAllowed(t *testing.T) {
	dir := t.TempDir()
	for _, named := range []bool{false, true} {
		options := auto(dir)
		options.Named = named
		options.Name = map[bool]string{false: "demo", true: "named"}[named]
		options.Compare = func(Earlier) ([]Change, error) { return nil, nil }
		run := mustOpen(t, options)
		store, err := checkpoint.Open(run.CheckpointDir(), checkpoint.Options{Keep: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Save(t.Context(),
			checkpoint.Snapshot{State: checkpoint.State{Step: 10, Config: "old"}}); err != nil {
			t.Fatal(err)
		}
		store.Close()
		run.Close()
		options.Resume, options.Compare = run.Dir, settingsOf("new")
		var changed *ChangedError
		if _, err := Open(options); !errors.As(err, &changed) ||
			!strings.Contains(err.Error(), "--resume "+run.Dir+" --allow lr") {
			t.Errorf("named %v: got %v, want the settings refused and the way on", named, err)
		}
		options.Compare = settingsOf("old")
		options.Steps, options.Length = 5, "train.steps = 5"
		if _, err := Open(options); !errors.As(err, &changed) || changed.Steps != 10 {
			t.Errorf("named %v: got %v, want a checkpoint beyond the end refused", named, err)
		}
		options.Steps = 11
		if run := mustOpen(t, options); run.Checkpoint == nil || run.MovedTo != "" {
			t.Errorf("named %v: got %+v, want a resume in place", named, run)
		}
	}
}

// After Open, the caller can still find that training is impossible. Open must therefore not create a folder or move
// the old run.
func TestOpenChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "experiments")
	run, err := Open(auto(dir))
	if err != nil {
		t.Fatal(err)
	}
	run.Close()
	if isFolder(dir) {
		t.Error("a run that was not begun has left a folder")
	}
	trainedRun(t, auto(dir))
	options := auto(dir)
	options.Compare = settingsOf("new")
	if run, err = Open(options); err != nil || run.Changed == nil {
		t.Fatalf("got %+v, %v, want a run that gives way", run, err)
	}
	run.Close()
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v, want the old run alone", entries)
	}
}

// A process can be killed while it moves a run. The test continues from each state that the process can leave.
func TestAMoveThatIsKilledLosesNothing(t *testing.T) {
	for state, prepare := range map[string]func(dir, logs string) error{
		"nothing moved": func(string, string) error { return nil },
		"the logs moved": func(_, logs string) error {
			return errors.Join(os.Mkdir(filepath.Join(logs, "demo-1"), 0o755),
				os.Rename(filepath.Join(logs, "train.log"), filepath.Join(logs, "demo-1", "train.log")))
		},
		"the folder moved": func(dir, _ string) error {
			return os.Rename(filepath.Join(dir, "demo"), filepath.Join(dir, "demo-1"))
		},
		"a fresh folder without a lock": func(dir, _ string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "demo"), filepath.Join(dir, "demo-1")),
				os.Mkdir(filepath.Join(dir, "demo"), 0o755))
		},
	} {
		dir := t.TempDir()
		options := auto(dir)
		options.LogDir = filepath.Join(dir, "logs")
		trainedRun(t, options)
		if err := errors.Join(os.WriteFile(filepath.Join(options.LogDir, "train.log"), []byte("old"), 0o644),
			prepare(dir, options.LogDir)); err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		options.Compare = settingsOf("new")
		run := mustOpen(t, options)
		if run.Checkpoint != nil || run.Finished != nil {
			t.Errorf("%s: got %+v, want a fresh run", state, run)
		}
		c, _, err := checkpoint.Latest(filepath.Join(dir, "demo-1", "checkpoints"))
		if err != nil {
			t.Errorf("%s: the old run: %v", state, err)
			continue
		}
		c.Close()
	}
}

// A move must not overwrite even an empty folder, because another process may have created it for its own run.
func TestAMoveNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"from", "to"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := renameNew(root, "from", "to"); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want %v", err, os.ErrExist)
	}
	if err := renameNew(root, "from", "new"); err != nil || !isFolder(filepath.Join(dir, "new")) {
		t.Errorf("got %v", err)
	}
}

// A move must leave the hardware profile in its place. It describes the machine, and the settings of the next run may
// contain its path.
func TestAProfileStaysWhereItIsNamed(t *testing.T) {
	dir := t.TempDir()
	profile := filepath.Join(dir, "demo", "configs", "gpu_profiles.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(profile), 0o755),
		os.WriteFile(profile, []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	options := auto(dir)
	run := mustOpen(t, options)
	if run.MovedTo != "" {
		t.Errorf("a folder with a profile alone was moved to %s", run.MovedTo)
	}
	run.Close()
	trainedRun(t, options)
	options.Compare = settingsOf("new")
	run = mustOpen(t, options)
	for _, path := range []string{profile, filepath.Join(run.MovedTo, "configs", "gpu_profiles.json")} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "{}" {
			t.Errorf("%s: got %q, %v", path, text, err)
		}
	}
	if len(run.Warnings) > 0 {
		t.Errorf("got warnings %q", run.Warnings)
	}
}

// A run cannot resume from a model with other shapes. The error must therefore not propose --allow.
func TestAnotherShapeProposesTheWeightsInsteadOfAllow(t *testing.T) {
	err := &ChangedError{Dir: "runs/a", Path: ResumeAuto, Changes: []Change{{Key: "data.path", Old: "a", New: "b"},
		{Key: "model.num_classes", Old: "5", New: "8", Shapes: true}}}
	if text := err.Error(); strings.Contains(text, "--allow") ||
		!strings.Contains(text, "--set model.init_from=runs/a --set experiment.name=NAME") {
		t.Errorf("got %s", text)
	}
}
