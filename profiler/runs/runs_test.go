package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResumeDropsRepeatedSteps(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	f.steps(1, 100)
	f.write("logs/balance.jsonl", `{"step":10,"shares":[32,32],"next":[40,24],"changed":true,"reason":"slow","ranks":[{"health":"healthy"},{"health":"sick","cause":"thermal throttling","evidence":"80 °C"}]}`+
		"\n")
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":2}}`+"\n"+
		`{"step":50,"bottleneck":{"bound":"straggler","rank":1,"text":"x","advice":"y"}}`+"\n"+
		`{"step":100,"bottleneck":{"bound":"straggler","rank":1,"text":"z","advice":"y"}}`+"\nnonsense\n")
	run := open(t, dir, "a")
	v := run.View()
	if v.Last != 100 || len(v.Changes) != 1 || len(v.Alerts) != 1 || v.Alerts[0].Kind != StragglerAlert ||
		v.Alerts[0].Evidence != "80 °C" || v.Verdicts[0].From != 1 || v.Verdicts[0].To != 100 || len(v.Verdicts) != 1 ||
		len(v.Starts) != 1 {
		t.Errorf("got %+v", v)
	}
	if want := "1 damaged line ignored"; v.Damaged["events.jsonl"] != want || len(v.Damaged) != 1 {
		t.Errorf("got damage %v", v.Damaged)
	}
	for _, w := range f.writers {
		if err := w.Truncate(60); err != nil {
			t.Fatal(err)
		}
	}
	f.write("logs/balance.jsonl", "")
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":2}}`+"\n")
	update(run)
	after := run.View()
	if after.Last != 60 || len(after.Changes)+len(after.Alerts)+len(after.Verdicts)+len(after.Damaged) != 0 ||
		after.Version == v.Version {
		t.Errorf("after the resume: got %+v", after)
	}
	if got := figures(t, run, Query{Points: 1000, Columns: []string{"loss"}}); len(got.Steps) != 60 {
		t.Errorf("after the resume: got %d steps, want 60", len(got.Steps))
	}
}

func TestStatesOfRuns(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lock := func(host string, pid int) string {
		return fmt.Sprintf(`{"pid":%d,"host":%q,"since":%q}`, pid, host,
			time.Now().Add(-time.Hour).Format(time.RFC3339))
	}
	result := func(fields string) string {
		return fmt.Sprintf(`{"steps":20,"ranks":1,"model":"m","dataset":"d","final_train_loss":0.5,"samples_per_second":100,"ended":%q,%s}`,
			time.Now().Format(time.RFC3339), fields)
	}
	for _, c := range []struct {
		name  string
		steps int64
		files map[string]string
		want  Kind
		why   string
	}{
		{"finished", 20, map[string]string{resultFile: result(`"exit":0`), lockFile: lock(host, 1)}, Finished, ""},
		{"failed", 20, map[string]string{resultFile: result(`"exit":4,"error":"the loss is not finite"`)}, Failed,
			"exit code 4: the loss is not finite"},
		{"failed-saved", 20, map[string]string{resultFile: result(`"exit":4`),
			checkpointsFolder + "/step-00000010/state.json": "{}"}, Failed, "exit code 4"},
		{"stopped", 20, map[string]string{resultFile: result(`"exit":130`)}, Stopped, "resumes"},
		{"late", 20, map[string]string{resultFile: result(`"exit":0,"out_of_time":true`)}, Stopped, "max_seconds"},
		{"crashed", 20, map[string]string{lockFile: lock(host, 1)}, Crashed,
			"after step 20; there is no checkpoint, so the same command starts again"},
		{"crashed-decided", 20, map[string]string{lockFile: lock(host, 1), logsFolder + "/" + balanceFile: `{"step":23,"shares":[40]}` + "\n"},
			Crashed, "after step 20"},
		{"crashed-undue", 20, map[string]string{lockFile: lock(host, 1), resolvedFile: "[profile]\nenabled = true\ninterval = 20\n",
			logsFolder + "/" + balanceFile: `{"step":23,"shares":[40]}` + "\n"}, Crashed, "after step 20"},
		{"decided", 20, map[string]string{resultFile: result(`"exit":0`), logsFolder + "/" + balanceFile: `{"step":23,"shares":[40]}` + "\n"},
			Finished, ""},
		{"crashed-saving", 20, map[string]string{lockFile: lock(host, 1),
			checkpointsFolder + "/step-00000010.tmp/state.json": "{}"}, Crashed, "there is no checkpoint"},
		{
			"crashed-saved", 20,
			map[string]string{lockFile: lock(host, 1), checkpointsFolder + "/step-00000010/state.json": "{}"}, Crashed,
			"after step 20; the same command resumes from the newest checkpoint"},
		{"crashed-later", 30, map[string]string{resultFile: result(`"exit":0`), lockFile: lock(host, 1)}, Crashed,
			"after step 30"},
		{"empty", 0, map[string]string{lockFile: lock(host, 1)}, Crashed,
			"No metrics found: the process ended before its first step"},
		{
			"unrecorded", 0,
			map[string]string{resultFile: result(`"exit":0`), resolvedFile: "[profile]\nenabled = false\n"}, Finished,
			"No metrics found: the run writes no metrics, because profile.enabled is false"},
		{"elsewhere", 20, map[string]string{lockFile: lock("another-host", 1)}, Running, ""},
		// The files are recent, but their records are old.
		{"elsewhere-copied", 20, map[string]string{lockFile: lock("another-host", 1)}, Unknown, "another-host"},
		{"elsewhere-empty", 0, map[string]string{lockFile: lock("another-host", 1)}, Unknown, "another-host"},
	} {
		f := newFakeRun(t, dir, c.name, 1)
		f.steps(1, c.steps)
		if c.name == "elsewhere" {
			f.fresh(c.steps + 1)
		}
		for name, text := range c.files {
			f.write(name, text)
		}
		v := open(t, dir, c.name).View()
		state, lost := v.State, c.name == "crashed-decided"
		if slices.Contains(v.Notes, "the records after step 20 are lost: the process ended before it wrote them, "+
			"and the newest decision is of step 23") != lost {
			t.Errorf("%s: got notes %q, want one about lost records: %v", c.name, v.Notes, lost)
		}
		if state.Kind != c.want || !strings.Contains(state.Why, c.why) || c.why == "" && state.Why != "" {
			t.Errorf("%s: got %+v, want %s because of %q", c.name, state, c.want, c.why)
		}
		if saved := strings.HasSuffix(c.name, "-saved"); state.Saved != saved {
			t.Errorf("%s: got a checkpoint %v, want %v", c.name, state.Saved, saved)
		}
	}
	folder := folderOf(t, dir)
	list, err := folder.List(t.Context())
	if err != nil || len(list.Runs) != 17 {
		t.Fatalf("got %d runs and error %v", len(list.Runs), err)
	}
	for _, s := range list.Runs {
		if s.Name == "crashed" && (s.Steps != 20 || float64(s.Loss) != 0.1 || s.Policy != "hybrid" ||
			s.State.Kind != Crashed || !math.IsNaN(float64(s.SamplesPerSecond))) {
			t.Errorf("got summary %+v", s)
		}
		if text, err := json.Marshal(s); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFoldersOpenOnlyRuns(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "good", 1).steps(1, 3)
	newFakeRun(t, filepath.Join(dir, "nested"), "inner", 1)
	outside := t.TempDir()
	newFakeRun(t, outside, "secret", 1)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o755),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t, dir)
	list, err := folder.List(t.Context())
	if err != nil || len(list.Runs) != 1 || !slices.Equal(list.Nested, []string{"nested"}) || list.Others != 2 {
		t.Errorf("got %+v and error %v", list, err)
	}
	for _, name := range []string{"link", "other", "missing", "../good", "good/../good", "..", ".", "", "a b",
		"good\x00", strings.Repeat("a", 65), "-x", ".lock", "%2e%2e"} {
		if run, err := folder.Open(name); err == nil {
			run.Close()
			t.Errorf("%q: opened, want an error", name)
		}
	}
	if _, err := folder.Open("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	single, err := OpenFolder(filepath.Join(dir, "good"))
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	if list, err := single.List(t.Context()); err != nil || len(list.Runs) != 1 || list.Runs[0].Name != "good" {
		t.Errorf("the folder of a run: got %+v and error %v", list, err)
	}
}

// The state must follow from the newest record in the file, and not from the newest one that was read.
func TestStateOfARunThatIsPartlyRead(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 1).steps(1, 5000)
	run := partlyRead(t, dir, "a")
	if v := run.View(); v.Last >= 5000 || !strings.Contains(v.State.Why, "after step 5000") {
		t.Errorf("after step %d was read: got %q", v.Last, v.State.Why)
	}
}

// A run is deleted, renamed, or replaced by a run with the same name.
func TestAFolderNoticesThatARunIsGone(t *testing.T) {
	dir := t.TempDir()
	folder := folderOf(t, dir)
	path := filepath.Join(dir, "a")
	for what, leave := range map[string]func() error{
		"deleted": func() error { return os.RemoveAll(path) },
		"renamed": func() error { return os.Rename(path, filepath.Join(t.TempDir(), "b")) },
		"replaced": func() error {
			newFakeRun(t, dir, "b", 1)
			return errors.Join(os.RemoveAll(path), os.Rename(filepath.Join(dir, "b"), path))
		},
	} {
		newFakeRun(t, dir, "a", 1).steps(1, 3)
		run, err := folder.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		single, err := OpenFolder(path)
		if err != nil {
			t.Fatal(err)
		}
		own, err := single.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		if !folder.Holds(run) || !single.Holds(own) {
			t.Fatalf("%s: got false before, want true", what)
		}
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		if folder.Holds(run) || single.Holds(own) {
			t.Errorf("%s: got true, want false", what)
		}
		if err := errors.Join(run.Close(), own.Close(), single.Close(), os.RemoveAll(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// The folder of a run's logs, or the folder of all runs, is replaced by another one.
func TestReplacedFoldersAreReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "experiments")
	newFakeRun(t, dir, "a", 2).steps(1, 20)
	folder := folderOf(t, dir)
	run, err := folder.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	update(run)
	before := run.View()
	if err := os.RemoveAll(filepath.Join(dir, "a", logsFolder)); err != nil {
		t.Fatal(err)
	}
	update(run)
	if v := run.View(); v.Last != 0 || len(v.Ranks) != 0 || v.Version == before.Version {
		t.Errorf("without its logs: got version %d, %d steps of %d ranks, want another version than %d, and no records",
			v.Version, v.Last, len(v.Ranks), before.Version)
	}
	newFakeRun(t, dir, "a", 1).steps(1, 5)
	update(run)
	if v := run.View(); v.Last != 5 || len(v.Ranks) != 1 {
		t.Errorf("with other logs: got %d steps of %d ranks, want 5 of 1", v.Last, len(v.Ranks))
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	newFakeRun(t, dir, "b", 1).steps(1, 5)
	if list, err := folder.List(t.Context()); err != nil || len(list.Runs) != 1 || list.Runs[0].Name != "b" {
		t.Errorf("a new folder of runs: got %+v and error %v, want run b", list.Runs, err)
	}
}

// While a listing reads the folder, other callers must be able to open runs.
func TestAListingBlocksNoOtherRun(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 1).steps(1, 3)
	folder := folderOf(t, dir)
	folder.mu.RLock() // holds the lock, as a listing of a slow folder does
	run, err := folder.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if !folder.Holds(run) {
		t.Error("got a missing run")
	}
	folder.mu.RUnlock()
}

// Only an invalid result counts as damaged, because other errors need other remedies.
func TestOnlyAnInvalidResultIsDamaged(t *testing.T) {
	for text, want := range map[string]string{"{": "the file is damaged", strings.Repeat(" ", mostResult+1): "at most",
		"{}": "", "": ""} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, "a", 1)
		f.steps(1, 3)
		f.write(resultFile, text)
		got := open(t, dir, "a").View().Damaged[resultFile]
		if (got == "") != (want == "") || !strings.Contains(got, want) || want == "at most" &&
			strings.Contains(got, "copy it again") {
			t.Errorf("%.5q: got %q, want %q", text, got, want)
		}
	}
}

// A copy of a run ends within a record, and must be named. While a run trains, such an end is not damage.
func TestFilesWithoutTheirEndAreNamed(t *testing.T) {
	for _, c := range []struct {
		file string
		size func(text string) int
		want string
	}{
		{"logs/rank_1_metrics.json", func(text string) int { return strings.LastIndex(text, "{") + 40 },
			"records of rank 1 end at step 19, and the file lacks its end"},
		{"logs/rank_0_metrics.json", func(text string) int { return strings.LastIndex(text, "]") },
			"records of rank 0 end at step 20, and the file lacks its end"},
		{"logs/balance.jsonl", func(text string) int { return len(text) - 4 }, "lacks its end"},
		{"logs/events.jsonl", func(text string) int { return len(text) - 4 }, "lacks its end"},
		{resultFile, func(text string) int { return len(text) / 2 }, "the file is damaged"},
		{resolvedFile, func(text string) int { return len(text) - 10 }, "the file is damaged"},
	} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, "a", 2)
		f.steps(1, 20)
		f.write("logs/balance.jsonl", `{"step":10,"shares":[1,2],"next":[1,2]}`+"\n"+
			`{"step":11,"shares":[1,2],"next":[1,2]}`+"\n")
		f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":2}}`+"\n"+`{"step":10,"checkpoint":{"seconds":1}}`+
			"\n")
		f.write(resultFile, fmt.Sprintf(`{"exit":0,"steps":20,"ranks":2,"ended":%q}`, time.Now().Format(time.RFC3339)))
		run := open(t, dir, "a")
		if damaged := run.View().Damaged; len(damaged) != 0 {
			t.Errorf("%s: got damage %v of a complete run", c.file, damaged)
		}
		text, err := os.ReadFile(filepath.Join(f.dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		f.write(c.file, string(text[:c.size(string(text))]))
		run = open(t, dir, "a")
		damaged := run.View().Damaged
		name := c.file
		if strings.HasPrefix(name, logsFolder) {
			name = filepath.Base(name)
		}
		if len(damaged) != 1 || !strings.Contains(damaged[name], c.want) {
			t.Errorf("%s: got damage %v, want %q", c.file, damaged, c.want)
		}
		list := listOf(t, dir)
		if got := list.Runs[0].Cut; strings.HasPrefix(name, "rank_") != (got != "") || got != "" &&
			!strings.HasPrefix(got, name+": the file lacks its end") {
			t.Errorf("%s: got %q in the list, want the name of a cut file of records", c.file, got)
		}
		if got := run.damage(Running); strings.HasPrefix(c.file, logsFolder) && len(got) != 0 {
			t.Errorf("%s: got damage %v while the run trains", c.file, got)
		}
	}
}

func TestADamagedEndIsTold(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 1)
	f.steps(1, 20)
	f.write(resultFile, fmt.Sprintf(`{"exit":0,"steps":20,"ranks":1,"ended":%q}`, time.Now().Format(time.RFC3339)))
	if v := open(t, dir, "a").View(); v.State.Kind != Finished || v.State.Why != "" {
		t.Errorf("without checkpoints: got %+v", v.State)
	}
	f.write("checkpoints/step-00000020/state.json", "{}") // this checkpoint has no manifest
	if v := open(t, dir, "a").View(); v.State.Kind != Finished ||
		!strings.Contains(v.State.Why, "the newest checkpoint is damaged: ") {
		t.Errorf("got %+v, want a finished run that names its damaged checkpoint", v.State)
	}
}

// The precision and the notes must be known from the start of the run.
func TestPrecisionAndNotesOfARun(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 1)
	f.write(resolvedFile, "[train]\nprecision = \"auto\"\n")
	f.steps(1, 20)
	if v := open(t, dir, "a").View(); v.Precision != "" || len(v.Notes) != 0 {
		t.Errorf("without a start: got precision %q and notes %q, want none", v.Precision, v.Notes)
	}
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":1,"precision":"bf16","notes":["CPU quotas"]}}`+"\n")
	if v := open(t, dir, "a").View(); v.Precision != "bf16" || !slices.Equal(v.Notes, []string{"CPU quotas"}) {
		t.Errorf("with a start: got precision %q and notes %q", v.Precision, v.Notes)
	}
	f.write(resultFile,
		fmt.Sprintf(
			`{"exit":0,"steps":20,"ranks":1,"ended":%q,"precision":"f32","notes":["CPU quotas","stopped early"]}`,
			time.Now().Format(time.RFC3339)))
	if v := open(t, dir, "a").View(); v.Precision != "f32" ||
		!slices.Equal(v.Notes, []string{"CPU quotas", "stopped early"}) {
		t.Errorf("with a result: got precision %q and notes %q", v.Precision, v.Notes)
	}
}

// A run that diverges skips many steps, which must be a single alert.
func TestSuccessiveSkippedStepsAreOneAlert(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 1)
	for step := int64(1); step <= 20; step++ {
		r := record(0, step)
		r.Skipped = step == 3 || step >= 10 && step <= 14 || step >= 19
		f.writers[0].Append(&r)
	}
	if err := f.writers[0].Flush(); err != nil {
		t.Fatal(err)
	}
	const why = " skipped because the gradient was not finite"
	want := []Alert{{3, "skipped", -1, "1 step" + why, ""}, {14, "skipped", -1, "5 steps" + why, ""},
		{20, "skipped", -1, "2 steps" + why, ""}}
	if got := open(t, dir, "a").View().Alerts; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
