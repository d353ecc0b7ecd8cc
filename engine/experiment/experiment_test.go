package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/regular"
)

func mustOpen(t *testing.T, options Options) *Run {
	t.Helper()
	run, err := begun(options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if run.Checkpoint != nil {
			run.Checkpoint.Close()
		}
		run.Close()
	})
	return run
}

// rootOf opens the folder of a run.
func rootOf(t *testing.T, run *Run) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(run.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// begun calls Open. If the run is not finished, it also calls Begin.
func begun(options Options) (*Run, error) {
	run, err := Open(options)
	if err != nil || run.Finished != nil {
		return run, err
	}
	if err := run.Begin(); err != nil {
		run.closeCheckpoint()
		run.Close()
		return nil, err
	}
	return run, nil
}

func auto(dir string) Options { return Options{OutputDir: dir, Name: "demo", Resume: ResumeAuto} }

// saveSteps saves checkpoints of the given steps in a run, and closes the run.
func saveSteps(t *testing.T, run *Run, steps ...int64) {
	t.Helper()
	store, err := checkpoint.Open(run.CheckpointDir(), checkpoint.Options{Keep: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, step := range steps {
		if _, err := store.Save(context.Background(),
			checkpoint.Snapshot{State: checkpoint.State{Step: step}}); err != nil {
			t.Fatal(err)
		}
	}
	run.Close()
}

func isFolder(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.IsDir()
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, want := range map[string]bool{
		"resnet50": true, "a.b-c_D9": true, long: true, "_x": true, "x-": true, "x..": true,
		"-x": false, "..x": false, ".x": false, "": false, ".": false, "..": false, "a/b": false, "a\\b": false,
		"ä": false, "a b": false, "a\x00": false, long + "x": false, "%2e": false,
	} {
		dir := t.TempDir()
		run, err := begun(Options{OutputDir: dir, Name: name, Resume: ResumeAuto})
		if got := err == nil; got != want {
			t.Errorf("%q: got %v, want accepted %v", name, err, want)
		}
		if err == nil {
			run.Close()
			continue
		}
		if entries, _ := os.ReadDir(dir); !errors.As(err, new(*NameError)) || len(entries) != 0 {
			t.Errorf("%q: got %T and entries %v, want *NameError and nothing made", name, err, entries)
		}
	}
}

func TestFreshRunHasItsFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "experiments")
	run := mustOpen(t, auto(dir))
	for _, name := range []string{"logs", "configs", "checkpoints", "results"} {
		if !isFolder(filepath.Join(dir, "demo", name)) {
			t.Errorf("no folder %s", name)
		}
	}
	if run.Checkpoint != nil || run.Finished != nil || run.MovedTo != "" {
		t.Errorf("got %+v, want a fresh run", run)
	}
	logs := filepath.Join(dir, "elsewhere")
	other := mustOpen(t, Options{OutputDir: dir, Name: "other", Resume: ResumeNone, LogDir: logs})
	if other.LogDir() != logs || !isFolder(logs) || isFolder(filepath.Join(dir, "other", "logs")) {
		t.Errorf("log folder %s, want only %s", other.LogDir(), logs)
	}
}

func TestSecondRunLearnsWhoHoldsTheFolder(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, auto(dir))
	for _, resume := range []string{ResumeAuto, ResumeNone} {
		_, err := Open(Options{OutputDir: dir, Name: "demo", Resume: resume})
		var inUse *InUseError
		if !errors.As(err, &inUse) {
			t.Fatalf("%s: got %v, want *InUseError", resume, err)
		}
		host, _ := os.Hostname()
		if inUse.Holder.PID != os.Getpid() || inUse.Holder.Host != host ||
			time.Since(inUse.Holder.Since) > time.Minute {
			t.Errorf("%s: got holder %+v", resume, inUse.Holder)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("a refused run left %v", entries)
	}
	first.Close()
	mustOpen(t, auto(dir))
}

// The test kills a process that has locked the folder.
func TestLockEndsWithItsProcess(t *testing.T) {
	const variable = "HETERO_TEST_HOLD_FOLDER"
	if dir := os.Getenv(variable); dir != "" {
		run := mustOpen(t, auto(dir))
		defer run.Close() // without this use of run, the garbage collector would close it and release its lock
		os.Stdout.WriteString("held\n")
		select {}
	}
	dir := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestLockEndsWithItsProcess$")
	holder.Env = append(os.Environ(), variable+"="+dir)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	var inUse *InUseError
	if _, err := Open(auto(dir)); !errors.As(err, &inUse) || inUse.Holder.PID != holder.Process.Pid {
		t.Errorf("while it lives: got %v, want *InUseError by %d", err, holder.Process.Pid)
	}
	holder.Process.Kill()
	holder.Wait()
	mustOpen(t, auto(dir))
}

func TestAutoResumesFromTheNewestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	saveSteps(t, mustOpen(t, auto(dir)), 10, 20)
	run := mustOpen(t, auto(dir))
	if run.Checkpoint == nil || run.Checkpoint.State.Step != 20 {
		t.Fatalf("got %+v, want step 20", run.Checkpoint)
	}
	run.Close()
	if err := os.Truncate(filepath.Join(dir, "demo", "checkpoints", "step-00000020", "MANIFEST"), 5); err != nil {
		t.Fatal(err)
	}
	run = mustOpen(t, auto(dir))
	if run.Checkpoint == nil || run.Checkpoint.State.Step != 10 || len(run.Skipped) != 1 {
		t.Fatalf("newest damaged: got %+v, skipped %v, want step 10", run.Checkpoint, run.Skipped)
	}
	run.Close()
	if err := os.Remove(filepath.Join(dir, "demo", "checkpoints", "step-00000010", "state.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(auto(dir)); !errors.As(err, new(*checkpoint.CorruptError)) ||
		!strings.Contains(err.Error(), "--resume none") {
		t.Errorf("all damaged: got %v, want *checkpoint.CorruptError with advice", err)
	}
}

func TestFinishedRunIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	run := mustOpen(t, auto(dir))
	if err := run.WriteResult(Result{Steps: 100, Epochs: 4, Exit: 0, BestEval: 0.75,
		FinalTrainLoss: Number(math.NaN())}); err != nil {
		t.Fatal(err)
	}
	saveSteps(t, run, 100)
	resultPath := filepath.Join(dir, "demo", "results", "result.json")
	before, err := os.ReadFile(resultPath)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name     string
		steps    int64
		exit     int
		gaveUp   string
		early    string
		finished bool
	}{
		{"same steps", 100, 0, "", "", true},
		{"no limit of steps", 0, 0, "", "", true},
		{"more steps asked for", 101, 0, "", "", false},
		{"interrupted", 100, 130, "", "", false},
		{"ended by the same early stopping", 200, 0, "no better for 3 evaluations", "top1, 3 evaluations, 0", true},
		{"ended by other early stopping", 200, 0, "no better for 3 evaluations", "top1, 2 evaluations, 0", false},
		{"ended by early stopping without a record of the rule", 0, 0, "no better for 3 evaluations", "", false},
	}
	for _, c := range cases {
		text := strings.Replace(string(before), `"exit": 0`, `"exit": `+string(must(json.Marshal(c.exit)))+
			`, "gave_up": `+string(must(json.Marshal(c.gaveUp)))+`, "early_stop": `+string(must(json.Marshal(c.early))),
			1)
		if err := os.WriteFile(resultPath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		options := auto(dir)
		options.Steps, options.EarlyStop = c.steps, "top1, 3 evaluations, 0"
		run := mustOpen(t, options)
		if got := run.Finished != nil; got != c.finished || (run.Checkpoint != nil) == c.finished {
			t.Errorf("%s: got finished %v, checkpoint %v", c.name, got, run.Checkpoint)
		}
		if run.Finished != nil && (run.Finished.BestEval != 0.75 || !math.IsNaN(float64(run.Finished.FinalTrainLoss))) {
			t.Errorf("%s: got result %+v", c.name, run.Finished)
		}
		run.Close()
		left := resultPath
		if !c.finished { // the run continues, so its earlier result has another name
			left = filepath.Join(filepath.Dir(resultPath), previousResultFile)
		}
		if after, _ := os.ReadFile(left); string(after) != text {
			t.Errorf("%s: the result was changed", c.name)
		}
	}
	last := filepath.Join(dir, "demo", "checkpoints", checkpoint.StepName(100))
	if err := os.Rename(filepath.Join(last, "state.json"), filepath.Join(last, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(resultPath, before, 0o644); err != nil {
		t.Fatal(err)
	}
	damaged := auto(dir)
	damaged.Steps = 100
	run = mustOpen(t, damaged)
	if run.Finished == nil || run.Lost == nil || run.Unread != nil ||
		!strings.Contains(run.Lost.Error(), "step-00000100") {
		t.Errorf("a damaged checkpoint of the end: got %+v, want a finished run whose weights are lost", run)
	}
	run.Close()
	if err := os.Rename(filepath.Join(last, "gone"), filepath.Join(last, "state.json")); err != nil {
		t.Fatal(err)
	}
	byPath := auto(dir)
	byPath.Resume = filepath.Join(dir, "demo")
	if err := os.WriteFile(resultPath, before, 0o644); err != nil {
		t.Fatal(err)
	}
	run = mustOpen(t, byPath)
	if run.Finished == nil || run.Checkpoint != nil {
		t.Errorf("its own folder as a path: got %+v, want it finished", run)
	}
	run.Close()
	if err := os.WriteFile(resultPath, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	run = mustOpen(t, auto(dir))
	if run.Finished != nil || run.Checkpoint == nil || len(run.Warnings) != 1 {
		t.Errorf("damaged result: got %+v, want a resume and a warning", run)
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

func TestNoneMovesTheOldRunAside(t *testing.T) {
	dir := t.TempDir()
	none := Options{OutputDir: dir, Name: "demo", Resume: ResumeNone}
	if run := mustOpen(t, none); run.MovedTo != "" {
		t.Errorf("nothing there: moved to %s", run.MovedTo)
	} else {
		run.Close()
	}
	for _, want := range []string{"demo-1", "demo-2", "demo-10"} {
		if want == "demo-10" {
			if err := os.Mkdir(filepath.Join(dir, "demo-9"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if run := mustOpen(t, none); run.MovedTo != "" && want == "demo-1" {
			t.Errorf("only empty folders there: moved to %s", run.MovedTo)
		} else {
			saveSteps(t, run, 10)
		}
		run := mustOpen(t, none)
		if run.MovedTo != filepath.Join(dir, want) || run.Checkpoint != nil {
			t.Fatalf("got moved to %q, checkpoint %v, want %s and a fresh run", run.MovedTo, run.Checkpoint, want)
		}
		c, _, err := checkpoint.Latest(filepath.Join(run.MovedTo, "checkpoints"))
		if err != nil {
			t.Fatalf("the old run lost its checkpoint: %v", err)
		}
		c.Close()
		if _, err := Open(none); !errors.As(err, new(*InUseError)) {
			t.Errorf("the fresh folder is not locked: %v", err)
		}
		run.Close()
	}
}

func TestAsideNamesStayValid(t *testing.T) {
	dir := t.TempDir()
	options := Options{OutputDir: dir, Name: strings.Repeat("n", 64), Resume: ResumeNone}
	saveSteps(t, mustOpen(t, options), 1)
	run := mustOpen(t, options)
	if want := strings.Repeat("n", 62) + "-1"; filepath.Base(run.MovedTo) != want {
		t.Errorf("got %s, want %s", run.MovedTo, want)
	}
}

func TestResumeFromPath(t *testing.T) {
	cases := []struct {
		name   string
		path   string // path relative to the output folder
		step   int64
		moved  bool
		target string // name of the new run
	}{
		{"a checkpoint of this run", "demo/checkpoints/step-00000010", 10, false, "demo"},
		{"this run", "demo", 20, false, "demo"},
		{"this run's checkpoints", "demo/checkpoints", 20, false, "demo"},
		{"a checkpoint of another run", "source/checkpoints/step-00000007", 7, true, "demo"},
		{"another run", "source", 7, true, "demo"},
		{"another run, into a folder that does not exist", "source", 7, false, "fresh"},
		{"through a link", "link", 20, false, "demo"},
		{"what latest names", "demo/checkpoints/latest", 20, false, "demo"},
	}
	for _, c := range cases {
		dir := t.TempDir()
		saveSteps(t, mustOpen(t, auto(dir)), 10, 20)
		source := auto(dir)
		source.Name = "source"
		saveSteps(t, mustOpen(t, source), 7)
		if err := os.Symlink(filepath.Join(dir, "demo"), filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		run := mustOpen(t, Options{OutputDir: dir, Name: c.target, Resume: filepath.Join(dir, c.path)})
		if run.Checkpoint == nil || run.Checkpoint.State.Step != c.step || (run.MovedTo != "") != c.moved {
			t.Errorf("%s: got %+v, moved to %q, want step %d, moved %v", c.name, run.Checkpoint, run.MovedTo, c.step,
				c.moved)
		}
	}
}

func TestResumeFromNothingMakesNothing(t *testing.T) {
	dir := t.TempDir()
	empty := t.TempDir()
	half := t.TempDir()
	if err := os.WriteFile(filepath.Join(half, "MANIFEST"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, path string
		want       error
	}{
		{"absent path", filepath.Join(dir, "absent"), fs.ErrNotExist},
		{"folder without checkpoints", empty, checkpoint.ErrNone},
		{"damaged checkpoint", half, nil},
	}
	for _, c := range cases {
		_, err := Open(Options{OutputDir: filepath.Join(dir, "out"), Name: "demo", Resume: c.path})
		if !errors.As(err, new(*ResumeError)) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want a *ResumeError of %v", c.name, err, c.want)
		}
		if c.want == nil && !errors.As(err, new(*checkpoint.CorruptError)) {
			t.Errorf("%s: got %v, want a *checkpoint.CorruptError inside", c.name, err)
		}
		if isFolder(filepath.Join(dir, "out")) {
			t.Errorf("%s: the output folder was made", c.name)
		}
	}
}

func TestStoredSettingsKeepEarlierOnes(t *testing.T) {
	dir := t.TempDir()
	run := mustOpen(t, auto(dir))
	for _, text := range []string{"a = 1\n", "a = 1\n", "a = 2\n", "a = 3\n"} {
		if err := run.StoreConfig(text, "1.0"); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"resolved.toml": "a = 3\n", "resolved.1.toml": "a = 1\n", "resolved.2.toml": "a = 2\n",
		"version.txt": "1.0\n"}
	got := map[string]string{}
	entries, _ := os.ReadDir(run.ConfigDir())
	for _, entry := range entries {
		text, _ := os.ReadFile(filepath.Join(run.ConfigDir(), entry.Name()))
		got[entry.Name()] = string(text)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if previous, err := run.PreviousConfig(); previous != "a = 3\n" || err != nil {
		t.Errorf("previous: got %q, %v", previous, err)
	}
}

func TestResultIsValidJSONAndLeavesNoTemporary(t *testing.T) {
	run := mustOpen(t, auto(t.TempDir()))
	for range 2 {
		if err := run.WriteResult(Result{Steps: 3, FinalTrainLoss: Number(math.Inf(1)), BestEval: Number(math.NaN()),
			SamplesPerSecond: 12.5}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(run.Dir, "results", "result.json"))
	var keys map[string]any
	if err == nil {
		err = json.Unmarshal(text, &keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"steps", "epochs", "final_train_loss", "best_eval", "samples_per_second", "exit"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no key %s", key)
		}
	}
	if keys["final_train_loss"] != nil || keys["best_eval"] != nil || keys["samples_per_second"] != 12.5 {
		t.Errorf("got %s", text)
	}
	if entries, _ := os.ReadDir(filepath.Join(run.Dir, "results")); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestLogIsAppended(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"one\n", "two\n"} {
		run := mustOpen(t, auto(dir))
		log, err := run.OpenLog()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		log.Close()
		run.Close()
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "demo", "logs", "train.log")); string(got) != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "demo")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(auto(dir)); !errors.As(err, new(*FolderError)) {
		t.Errorf("the run's folder is a link: got %v, want *FolderError", err)
	}
	other := auto(dir)
	other.Name = "other"
	run := mustOpen(t, other)
	if err := os.Remove(filepath.Join(run.Dir, "results")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(run.Dir, "results")); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteResult(Result{}); !errors.As(err, new(*FolderError)) {
		t.Errorf("results is a link: got %v, want *FolderError", err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("written outside: %v", entries)
	}
}

// If the writer fails before it has written everything, the old contents must remain.
func TestAFileIsReplacedWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "summary.json")
	refused := errors.New("no")
	for _, c := range []struct {
		text string
		fail error
		want string
	}{{"first", nil, "first"}, {"half of the sec", refused, "first"}, {"second", nil, "second"}} {
		err := Replace(path, func(w io.Writer) error {
			_, err := io.WriteString(w, c.text)
			return errors.Join(err, c.fail)
		})
		text, readErr := os.ReadFile(path)
		list, listErr := os.ReadDir(dir)
		if !errors.Is(err, c.fail) || readErr != nil || listErr != nil || string(text) != c.want || len(list) != 1 {
			t.Errorf("write %q: got %v, file %q, %d files, want %q alone", c.text, err, text, len(list), c.want)
		}
	}
}

// A pipe or a folder must not be replaced, because this would remove it. This also holds for a link to a pipe.
func TestOnlyRegularFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(needtest.MakePipe(pipe), os.Symlink("pipe", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, dir} {
		before, _ := os.Lstat(path)
		var refused *regular.Error
		if err := ReplaceText(path, []byte("text")); !errors.As(err, &refused) || refused.Path != path {
			t.Errorf("%s: got %v, want a refused path", path, err)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: got %v, %v, want it unchanged", path, after, err)
		}
	}
}

// After a crash, the best checkpoint may still have its temporary name. In this case, another checkpoint of the same
// step was about to replace it.
func TestTheBestCheckpointIsFoundAfterACrash(t *testing.T) {
	run := mustOpen(t, auto(t.TempDir()))
	saveSteps(t, run, 3)
	dir := run.CheckpointDir()
	name := checkpoint.StepName(3)
	for _, err := range []error{os.WriteFile(filepath.Join(dir, "best"), []byte(name+"\n"), 0o644),
		os.Rename(filepath.Join(dir, name), filepath.Join(dir, name+".old"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := FindCheckpoint(filepath.Join(dir, "best"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.State.Step != 3 {
		t.Errorf("got step %d, want 3", c.State.Step)
	}
}
