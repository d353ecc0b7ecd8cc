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

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// fakeRun writes the folder of a run.
type fakeRun struct {
	t       *testing.T
	dir     string
	writers []*runtime.Writer
}

func newFakeRun(t *testing.T, parent, name string, ranks int) *fakeRun {
	t.Helper()
	f := &fakeRun{t: t, dir: filepath.Join(parent, name)}
	f.write(resolvedFile, "[model]\nname = \"simple_cnn\"\n[data]\ndataset = \"synthetic_image\"\nbatch_size = 64\n[balance]\npolicy = \"hybrid\"\n[profile]\nenabled = true\n")
	if err := os.MkdirAll(filepath.Join(f.dir, logsFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w, _, err := runtime.Open(filepath.Join(f.dir, logsFolder, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		f.writers = append(f.writers, w)
	}
	return f
}

func (f *fakeRun) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

// record returns a record whose values depend on step and rank. Step 777 is very slow.
func record(rank int, step int64) runtime.Record {
	r := runtime.Record{Iteration: step, Rank: rank, BatchSize: int64(40 - 16*rank%32),
		Timestamp: time.Unix(1700000000+step, 0), Values: telemetry.Values{telemetry.Loss: 2 / float64(step),
			telemetry.Accuracy: math.NaN(), telemetry.LearningRate: 0.1, telemetry.LossScale: 1},
		DataLoading: time.Microsecond, Forward: 10 * time.Millisecond, Backward: 20 * time.Millisecond,
		Communication:       time.Duration(rank) * time.Millisecond,
		CommunicationHidden: time.Millisecond, Bytes: 1 << 20, Optimizer: time.Millisecond,
		Telemetry: telemetry.Unknown()}
	if step == 777 {
		r.Forward = 3 * time.Second
	}
	return r
}

func (f *fakeRun) steps(from, to int64) {
	f.t.Helper()
	for rank, w := range f.writers {
		for step := from; step <= to; step++ {
			r := record(rank, step)
			w.Append(&r)
			if step%4096 == 0 {
				w.Flush()
			}
		}
		if err := w.Flush(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// fresh adds a record of the present time.
func (f *fakeRun) fresh(step int64) {
	f.t.Helper()
	r := record(0, step)
	r.Timestamp = time.Now()
	f.writers[0].Append(&r)
	if err := f.writers[0].Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// open opens a run and reads all records.
func open(t *testing.T, parent, name string) *Run {
	t.Helper()
	run := opened(t, parent, name)
	update(run)
	return run
}

// opened opens a run without reading its records.
func opened(t *testing.T, parent, name string) *Run {
	t.Helper()
	folder, err := OpenFolder(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	run, err := folder.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

// partlyRead opens a run and reads only a part of its records.
func partlyRead(t *testing.T, parent, name string) *Run {
	t.Helper()
	run := opened(t, parent, name)
	if !run.Update(1) {
		t.Fatal("got all records at once, want a part")
	}
	return run
}

func update(run *Run) {
	for run.Update(1 << 20) {
	}
}

func figures(t *testing.T, run *Run, q Query) *Figures {
	t.Helper()
	f, err := run.Figures(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// line returns the values of a column of one rank.
func (f *Figures) line(t *testing.T, column string, rank int) Line {
	t.Helper()
	at := slices.IndexFunc(f.Lines, func(l Line) bool { return l.Column == column && l.Rank == rank })
	if at < 0 {
		t.Fatalf("no line %s of rank %d", column, rank)
	}
	return f.Lines[at]
}

// The throughput of several steps is samples / time, and not the mean of the throughputs of the steps.
func TestThroughputOfSeveralStepsIsSamplesOverTime(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	f.steps(1, 800)
	run := open(t, dir, "a")
	update(run)
	got := figures(t, run, Query{From: 1, Points: 10, Columns: []string{"throughput", "total_throughput"}})
	if got.Width != 80 {
		t.Fatalf("got width %d, want 80", got.Width)
	}
	for i, last := range got.Steps {
		total := 0.0
		for rank := range 2 {
			samples, seconds := 0.0, 0.0
			for step := last - 79; step <= last; step++ {
				r := record(rank, step)
				samples, seconds = samples+float64(r.BatchSize), seconds+r.Took().Seconds()
			}
			total += samples / seconds
			if v := got.line(t, "throughput", rank).Mean[i]; math.Abs(v-samples/seconds) > 1e-9*v {
				t.Errorf("up to step %d, rank %d: got %g samples/s, want %g", last, rank, v, samples/seconds)
			}
		}
		if v := got.line(t, "total_throughput", AllRanks).Mean[i]; math.Abs(v-total) > 1e-9*v {
			t.Errorf("up to step %d: got %g samples/s in all, want %g", last, v, total)
		}
	}
}

func TestFiguresEqualTheRecords(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	run := open(t, dir, "a")
	if got := figures(t, run, Query{Points: 100, Columns: []string{"loss", "own"}}); len(got.Steps) != 0 ||
		len(got.Lines) != 0 {
		t.Errorf("a run without records: got %+v", got)
	}
	for _, end := range []int64{1, 30, 800} {
		f.steps(run.View().Last+1, end)
		update(run)
		got := figures(t, run, Query{From: 1, Points: 1000, Columns: []string{"loss", "own", "communication", "share"}})
		if got.Width != 1 || int64(len(got.Steps)) != end || got.To != end {
			t.Fatalf("%d steps: got width %d and %d steps up to %d", end, got.Width, len(got.Steps), got.To)
		}
		for i, step := range got.Steps {
			for rank := range 2 {
				want := record(rank, step)
				if v := got.line(t, "own", rank).Mean[i]; v != ownSeconds(&want) {
					t.Errorf("step %d, rank %d: got %v s, want %v s", step, rank, v, ownSeconds(&want))
				}
				if v := got.line(t, "share", rank).Mean[i]; v != float64(want.BatchSize) {
					t.Errorf("step %d, rank %d: got share %v, want %v", step, rank, v, want.BatchSize)
				}
			}
			if v := got.line(t, "loss", AllRanks).Mean[i]; v != 2/float64(step) ||
				got.Times[i] != float64(1700000000+step) {
				t.Errorf("step %d: got loss %v at %v", step, v, got.Times[i])
			}
		}
	}
	total := figures(t, run, Query{From: 5, To: 5, Points: 10, Columns: []string{"total_throughput"}, Ranks: []int{1}})
	want := 0.0
	for rank := range 2 {
		m := record(rank, 5)
		want += m.Throughput()
	}
	if got := total.line(t, "total_throughput", AllRanks).Mean; len(total.Lines) != 1 || len(got) != 1 ||
		got[0] != want {
		t.Errorf("got total %v, want %v", got, want)
	}
	if rankColumns[throughputColumn].Name != "throughput" || rankColumns[busColumn].Name != "bus_bandwidth" {
		t.Error("the indices of columns do not fit the table")
	}
	if _, err := run.Figures(t.Context(), Query{Points: 1, Columns: []string{"nonsense"}}); err == nil {
		t.Error("an unknown column: got no error")
	}
	v := run.View()
	if v.First != 1 || v.Last != 800 || len(v.Ranks) != 2 || v.Ranks[1].Record.Communication != time.Millisecond ||
		len(v.Damaged) != 0 {
		t.Errorf("got view %+v", v)
	}
	shares := v.Curves[0].Shares
	if len(shares) != 1 || shares[0].Samples != 40 || shares[0].Steps != 800-runtime.WarmUpSteps || shares[0].Max < 3 ||
		shares[0].Min > 0.031 {
		t.Errorf("got measured shares %+v", shares)
	}
}

// TestThinningKeepsOutliers also checks that a short range of a run with merged cells has exact values.
func TestThinningKeepsOutliers(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 2).steps(1, 30000)
	run := open(t, dir, "a")
	if width := run.ranks[0].grid.width; width < 8 {
		t.Fatalf("got cells of %d steps, want merged cells", width)
	}
	for _, q := range []Query{{Points: 500}, {Points: 100, Ranks: []int{1}}, {From: 700, To: 20000, Points: 90}} {
		q.Columns = []string{"forward"}
		got := figures(t, run, q)
		l := got.line(t, "forward", 1)
		at := slices.IndexFunc(got.Steps, func(s int64) bool { return s >= 777 })
		if got.Width < 2 || len(got.Steps) > q.Points || math.Abs(l.Max[at]-3) > 1e-6 ||
			math.Abs(l.Min[at]-0.01) > 1e-6 {
			t.Errorf("%+v: got width %d, %d points, minimum %v and maximum %v of the slow step, want 0.01 s and 3 s", q,
				got.Width, len(got.Steps), l.Min[at], l.Max[at])
		}
		if mean := l.Mean[at]; !(mean > 0.01 && mean < 3) {
			t.Errorf("%+v: got mean %v s", q, mean)
		}
	}
	zoom := figures(t, run, Query{From: 770, To: 790, Points: 500, Columns: []string{"forward"}})
	if l := zoom.line(t, "forward", 0); zoom.Width != 1 || len(l.Mean) != 21 || l.Mean[7] != 3 || l.Mean[8] != 0.01 ||
		zoom.Steps[7] != 777 {
		t.Errorf("zoom: got %+v", zoom)
	}
}

// TestLongRangesAreNotRead: reading many records would take long on a machine that trains.
func TestLongRangesAreNotRead(t *testing.T) {
	for _, end := range []int64{1500, 6000} { // cells of one step and of several
		dir := t.TempDir()
		f := newFakeRun(t, dir, "a", 2)
		f.steps(1, end)
		run := open(t, dir, "a")
		for rank := range 2 {
			if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(rank))); err != nil {
				t.Fatal(err)
			}
		}
		for _, points := range []int{4, 600, 4000} {
			got := figures(t, run, Query{From: 11, To: end - 3, Points: points, Columns: []string{"forward", "loss"}})
			if len(got.Steps) == 0 || got.Steps[0] < 11 || got.Steps[len(got.Steps)-1] != end-3 {
				t.Fatalf("%d steps, %d points: got the steps %v, want %d to %d", end, points, got.Steps, 11, end-3)
			}
			if most := max(got.Width, run.ranks[0].grid.width); len(got.Steps) > points ||
				int64(len(got.Steps)) < (end-13)/most {
				t.Errorf("%d steps, %d points: got %d points of %d steps", end, points, len(got.Steps), got.Width)
			}
			if got.Width > 1 {
				continue
			}
			for i, step := range got.Steps {
				want := 2 / float64(step)
				if v := got.line(t, "loss", AllRanks).Mean[i]; math.Abs(v-want) > 1e-6*want {
					t.Fatalf("step %d: got loss %v, want %v", step, v, want)
				}
			}
		}
	}
}

func TestManyRanksAreShownAsBands(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 9).steps(1, 50)
	run := open(t, dir, "a")
	got := figures(t, run, Query{Points: 100, Columns: []string{"communication", "throughput"}})
	l := got.line(t, "communication", Band)
	if l.Mean[9] != 0.004 || l.Min[9] != 0 || l.Max[9] != 0.008 || l.Worst[9] != 8 {
		t.Errorf("got median %v, minimum %v, maximum %v, worst rank %d", l.Mean[9], l.Min[9], l.Max[9], l.Worst[9])
	}
	if w := got.line(t, "throughput", Band).Worst[9]; w == 0 {
		t.Errorf("throughput: got rank 0 as the worst, want a rank with fewer samples per second")
	}
	if one := figures(t, run, Query{Points: 100, Columns: []string{"communication"}, Ranks: []int{5}}); one.line(t,
		"communication", 5).Mean[9] != 0.005 {
		t.Errorf("a named rank: got %+v", one.Lines)
	}
}

func TestMemoryForCellsIsLimited(t *testing.T) {
	for _, ranks := range []int{1, 4, 64, 1000} {
		cells := cellsFor(ranks, len(rankColumns))
		if bytes := cells * ranks * len(rankColumns) * cellBytes; bytes > mostGridBytes || cells < 32 {
			t.Errorf("%d ranks: got %d cells, %d bytes, want at most %d", ranks, cells, bytes, mostGridBytes)
		}
	}
	g := newGrid(1, 64)
	for _, step := range []int64{1, 2, 1000, 1 << 40} {
		g.add(step, step, 0, []float64{1})
	}
	if len(g.place) > 64 || g.cells[0][0].n != 3 {
		t.Errorf("got %d cells, the first with %d values", len(g.place), g.cells[0][0].n)
	}
}

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
		// recent files with old records
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
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
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
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
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

// TestStateOfARunThatIsPartlyRead: the state follows from the newest record of the file, not from the newest one read.
func TestStateOfARunThatIsPartlyRead(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 1).steps(1, 5000)
	run := partlyRead(t, dir, "a")
	if v := run.View(); v.Last >= 5000 || !strings.Contains(v.State.Why, "after step 5000") {
		t.Errorf("after step %d was read: got %q", v.Last, v.State.Why)
	}
}

func TestManyRanksAreReadInTurns(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 5).steps(1, 2000) // more than leastTurn bytes for each rank
	run := open(t, dir, "a")
	if got := figures(t, run, Query{Points: 10, Columns: []string{"total_throughput"}}).line(t, "total_throughput",
		AllRanks).Mean; len(got) == 0 || math.IsNaN(got[len(got)-1]) {
		t.Errorf("got %v, want the throughput of all ranks up to the end", got)
	}
	for i, k := range run.ranks {
		if k.last.Iteration != 2000 {
			t.Errorf("rank %d: read up to step %d, want 2000", i, k.last.Iteration)
		}
	}
}

func TestTheNumberOfValuesIsLimited(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 64).steps(1, 400)
	run := open(t, dir, "a")
	q := Query{Points: 400}
	for i := range 64 {
		q.Ranks = append(q.Ranks, i)
	}
	for _, c := range rankColumns {
		q.Columns = append(q.Columns, c.Name)
	}
	got := figures(t, run, q)
	if values := len(got.Lines) * len(got.Steps); values > mostValues || len(got.Lines) != 64*trafficColumn ||
		len(got.Steps) == 0 {
		// the records have no traffic
		t.Errorf("got %d lines with %d points, want %d lines with at most %d values", len(got.Lines), len(got.Steps),
			64*trafficColumn, mostValues)
	}
	for _, twice := range []Query{{Columns: []string{"loss", "loss"}}, {Columns: []string{"own"}, Ranks: []int{1, 1}}} {
		if _, err := run.Figures(t.Context(), twice); !errors.As(err, new(*QueryError)) {
			t.Errorf("%+v: got error %v, want a QueryError", twice, err)
		}
	}
}

// TestAFolderNoticesThatARunIsGone: deleted, renamed, and replaced by a run of the same name.
func TestAFolderNoticesThatARunIsGone(t *testing.T) {
	dir := t.TempDir()
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
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

// TestReplacedFoldersAreReadAgain: the folder of logs of a run, and the folder of all runs.
func TestReplacedFoldersAreReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "experiments")
	newFakeRun(t, dir, "a", 2).steps(1, 20)
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
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

// TestRanksWithoutRecordsAreNamed: a copy of a run lacks the files of ranks.
func TestRanksWithoutRecordsAreNamed(t *testing.T) {
	const start = `{"step":0,"start":{"ranks":%d}}` + "\n"
	result := func(ranks int) string {
		return fmt.Sprintf(`{"exit":0,"steps":20,"ranks":%d,"ended":%q}`, ranks, time.Now().Format(time.RFC3339))
	}
	decision := `{"step":10,"shares":[1,2,3],"next":[1,2,3]}` + "\n"
	for _, c := range []struct {
		name   string
		files  int
		remove []int
		texts  map[string]string
		want   string
		ranks  int
	}{
		{"complete", 2, nil, map[string]string{"logs/events.jsonl": fmt.Sprintf(start, 2), resultFile: result(2)}, "",
			2},
		{"alone", 1, nil, nil, "", 1},
		{"fewer-ranks-after-a-resume", 3, nil, map[string]string{
			"logs/events.jsonl": fmt.Sprintf(start, 3) + `{"step":10,"start":{"ranks":2}}` + "\n"}, "", 2},
		{"start", 2, []int{1}, map[string]string{"logs/events.jsonl": fmt.Sprintf(start, 2)},
			"rank 1 of 2 (rank_1_metrics.json is missing)", 2},
		{"result", 2, []int{1}, map[string]string{resultFile: result(2)}, "rank 1 of 2", 2},
		{"decision", 2, nil, map[string]string{"logs/balance.jsonl": decision,
			"logs/events.jsonl": fmt.Sprintf(start, 2)}, "rank 2 of 3", 3},
		{"gap", 4, []int{1, 2}, nil, "ranks 1, 2 of 4 (rank_1_metrics.json and others are missing)", 4},
		{"first", 2, []int{0}, map[string]string{"logs/events.jsonl": fmt.Sprintf(start, 2)}, "rank 0 of 2", 2},
		{"many", 1, nil, map[string]string{"logs/events.jsonl": fmt.Sprintf(start, 12)},
			"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12", 12},
		{"none", 0, nil, map[string]string{"logs/events.jsonl": fmt.Sprintf(start, 2)}, "", 0},
	} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, c.name, c.files)
		f.steps(1, 20)
		for _, rank := range c.remove {
			if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(rank))); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range c.texts {
			f.write(name, text)
		}
		run := open(t, dir, c.name)
		v := run.View()
		folder, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		list, err := folder.List(t.Context())
		if err := errors.Join(err, folder.Close()); err != nil {
			t.Fatal(err)
		}
		state, fromFiles, err := Judge(f.dir, filepath.Join(f.dir, logsFolder))
		if err != nil {
			t.Fatal(err)
		}
		if state.Kind != v.State.Kind {
			t.Errorf("%s: got state %s from the files, want that of the view, %s", c.name, state.Kind, v.State.Kind)
		}
		ended := v.Result != nil
		if unknown := math.IsNaN(float64(list.Runs[0].SamplesPerSecond)); !ended && c.ranks > 0 &&
			unknown != (c.want != "" || state.Kind == Crashed) {
			t.Errorf(
				"%s: got %g samples/s in the list, want an unknown value only if records are missing or the run crashed",
				c.name, list.Runs[0].SamplesPerSecond)
		}
		for reader, got := range map[string]string{"view": v.Lacking, "list": list.Runs[0].Lacking,
			"files": fromFiles} {
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || got != "" &&
				!strings.Contains(got, "copy the whole folder of logs") {
				t.Errorf("%s, %s: got %q, want %q and the cure", c.name, reader, got, c.want)
			}
		}
		if len(v.Ranks) != c.ranks || list.Runs[0].Ranks != c.ranks {
			t.Errorf("%s: got %d ranks in the view and %d in the list, want %d", c.name, len(v.Ranks),
				list.Runs[0].Ranks, c.ranks)
		}
		for rank, k := range v.Ranks {
			if found := slices.Contains(c.remove, rank) || rank >= c.files; k.Missing != found {
				t.Errorf("%s: rank %d: got missing %v, want %v", c.name, rank, k.Missing, found)
			}
		}
		if c.want != "" && strings.Contains(v.State.Why, "before its first step") {
			t.Errorf("%s: got the state %+v, want no reason for missing steps", c.name, v.State)
		}
		if c.name != "start" {
			continue
		}
		if total := figures(t, run, Query{Points: 10, Columns: []string{"total_throughput"}}).line(t,
			"total_throughput", AllRanks).Mean; total.known() {
			t.Errorf("%s: got a throughput of all ranks %v, want an unknown one", c.name, total)
		}
		version := v.Version
		newFakeRun(t, dir, c.name, 2).steps(1, 20) // the missing file is copied
		update(run)
		if v := run.View(); v.Lacking != "" || v.Version == version || v.Ranks[1].Record == nil {
			t.Errorf("%s: after the file was copied: got %q and rank 1 %+v", c.name, v.Lacking, v.Ranks[1])
		}
		if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(1))); err != nil {
			t.Fatal(err)
		}
		update(run) // notices that the file is missing
		update(run)
		if v := run.View(); !strings.Contains(v.Lacking, "rank 1 of 2") || v.Ranks[1].Record != nil {
			t.Errorf("%s: after the file was deleted: got %q and rank 1 %+v", c.name, v.Lacking, v.Ranks[1])
		}
	}
}

// TestTotalThroughputIsThatOfTheRanksOfEachProcess: a process with fewer ranks has resumed the run.
func TestTotalThroughputIsThatOfTheRanksOfEachProcess(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 3)
	f.steps(1, 10)
	newFakeRun(t, dir, "a", 2).steps(11, 20)
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":3}}`+"\n"+`{"step":10,"start":{"ranks":2}}`+"\n")
	run := open(t, dir, "a")
	for _, points := range []int{20, 4} {
		got := figures(t, run, Query{Points: points, Columns: []string{"total_throughput"}}).line(t, "total_throughput",
			AllRanks).Mean
		if len(got) != points || slices.ContainsFunc(got, math.IsNaN) {
			t.Errorf("%d points: got %v, want the throughput of 3 and then of 2 ranks", points, got)
		}
	}
	v := run.View()
	if len(v.Ranks) != 2 || v.SegmentFrom != 11 || len(v.Curves) != 2 {
		t.Errorf("got %d ranks and %d curves from step %d on, want 2 of each from step 11 on", len(v.Ranks),
			len(v.Curves), v.SegmentFrom)
	}
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":3}}`+"\n")
	run = open(t, dir, "a")
	if got := figures(t, run, Query{Points: 20, Columns: []string{"total_throughput"}}).line(t, "total_throughput",
		AllRanks).Mean; math.IsNaN(got[0]) || !math.IsNaN(got[19]) {
		t.Errorf("without a resume: got %v, want an unknown throughput from step 11 on", got)
	}
}

// TestAListingBlocksNoOtherRun: while a listing reads the folder, other callers open runs.
func TestAListingBlocksNoOtherRun(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 1).steps(1, 3)
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	folder.mu.RLock() // as a listing of a slow folder does
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

// TestOnlyAnInvalidResultIsDamaged: other errors have other fixes.
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

// TestFilesWithoutTheirEndAreNamed: a copy of a run ends within a record. While a run trains, this is not damage.
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
		folder, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		list, err := folder.List(t.Context())
		if err := errors.Join(err, folder.Close()); err != nil {
			t.Fatal(err)
		}
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
	f.write("checkpoints/step-00000020/state.json", "{}") // without its manifest
	if v := open(t, dir, "a").View(); v.State.Kind != Finished ||
		!strings.Contains(v.State.Why, "the newest checkpoint is damaged: ") {
		t.Errorf("got %+v, want a finished run that names its damaged checkpoint", v.State)
	}
}

// TestPrecisionAndNotesOfARun: both are known from the start of the run.
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

// TestProgressCountsRanksThatHadNoTurn: of many ranks, only some are read at a time.
func TestProgressCountsRanksThatHadNoTurn(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 5).steps(1, 2000)
	run := partlyRead(t, dir, "a")
	if p := run.View().Progress; p.Read*8 > p.Bytes {
		t.Errorf("after a part of one of five files: got %d of %d bytes", p.Read, p.Bytes)
	}
	update(run)
	if p := run.View().Progress; float64(p.Read) < 0.99*float64(p.Bytes) {
		t.Errorf("after all files: got %d of %d bytes", p.Read, p.Bytes)
	}
}

// TestSuccessiveSkippedStepsAreOneAlert: a diverging run skips many steps.
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

// TestAViewHasNoFiguresOfOtherRanks: after a resume with fewer ranks, verdicts, decision, table and measured times are
// those of the present ranks.
func TestAViewHasNoFiguresOfOtherRanks(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 3)
	f.steps(1, 60)
	const verdict = `{"step":%d,"bottleneck":{"bound":"straggler","rank":0,"text":"waiting for rank 0"}}` + "\n"
	f.write("logs/balance.jsonl", `{"step":50,"shares":[8,8,8],"next":[8,8,8],"share_of_oracle":0.6,"ranks":[{"health":"sick","cause":"x"},{},{}]}`+
		"\n")
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":3}}`+"\n"+fmt.Sprintf(verdict, 50)+
		`{"step":60,"start":{"ranks":1}}`+"\n")
	if v := open(t, dir, "a").View(); len(v.Ranks) != 3 || len(v.Verdicts) != 1 || v.Decision == nil {
		t.Errorf("before the first step of the resume: got %d ranks, %d verdicts and the decision %+v, want those of three ranks",
			len(v.Ranks), len(v.Verdicts), v.Decision)
	}
	newFakeRun(t, dir, "a", 1).steps(61, 90)
	v := open(t, dir, "a").View()
	if len(v.Ranks) != 1 || v.Ranks[0].Health != "" || len(v.Verdicts) != 0 || v.Decision != nil ||
		v.SegmentFrom != 61 {
		t.Errorf("got ranks %+v, verdicts %+v, decision %+v from step %d on, want rank 0 from step 61 on", v.Ranks,
			v.Verdicts, v.Decision, v.SegmentFrom)
	}
	steps := int64(0)
	for _, s := range v.Curves[0].Shares {
		steps += s.Steps
	}
	if steps != 30 {
		t.Errorf("got measured times of %d steps, want those of the 30 steps with one rank", steps)
	}
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":3}}`+"\n"+fmt.Sprintf(verdict, 50)+
		`{"step":60,"start":{"ranks":1}}`+"\n"+fmt.Sprintf(verdict, 90))
	if v := open(t, dir, "a").View(); len(v.Verdicts) != 1 || v.Verdicts[0].From != 61 || v.Verdicts[0].To != 90 {
		t.Errorf("got the verdicts %+v, want one on steps 61 to 90", v.Verdicts)
	}
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	list, err := folder.List(t.Context())
	if err != nil || len(list.Runs) != 1 {
		t.Fatalf("got %+v, %v, want one run", list, err)
	}
	for _, s := range list.Runs {
		if s.Ranks != 1 || s.ShareOfOracle == s.ShareOfOracle {
			t.Errorf("got a row with %d ranks and the fraction %v, want 1 and an unknown one", s.Ranks, s.ShareOfOracle)
		}
	}
}
