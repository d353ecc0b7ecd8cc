package runs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// append adds records of some steps of one rank.
func (f *fakeRun) append(rank int, from, to int64) {
	f.t.Helper()
	w := f.writers[rank]
	for step := from; step <= to; step++ {
		r := record(rank, step)
		r.StepTime, r.TrainingTime = 50*time.Millisecond, time.Duration(step)*60*time.Millisecond
		w.Append(&r)
		if step%4096 == 0 {
			w.Flush()
		}
	}
	if err := w.Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// The times of a rank may vary, for example if a CPU quota stops it in every second step. A single step then says
// little about its speed.
func TestTheSpeedOfRanksIsThatOfTheNewestDecision(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	f.append(0, 1, 24)
	f.append(1, 1, 24)
	v := open(t, dir, "a").View()
	r := v.Ranks[1].Record
	if own := v.Ranks[1].BusySeconds; v.Speed.Decision != 0 || own <= 0 ||
		math.Abs(float64(own)-r.Own().Seconds()) > 1e-12 || v.Ranks[1].Share != experiment.Number(r.BatchSize) {
		t.Errorf("without a decision: got %+v, %+v, want the figures of the record", v.Speed, v.Ranks[1].RankSpeed)
	}
	batch := float64(v.Ranks[0].Record.BatchSize + r.BatchSize)
	f.write("logs/balance.jsonl", `{"step":20,"policy":"dynamic","shares":[3,1],"next":[3,1],"step_seconds":0.5,"ranks":[{"seconds":0.1,"waited_seconds":0.3,"health":"healthy"},{"seconds":0.4,"waited_seconds":0,"health":"sick","cause":"CPU quota"}]}`+
		"\n")
	v = open(t, dir, "a").View()
	want := RankSpeed{experiment.Number(batch / 4), 0.4, 0, experiment.Number(batch / 4 / 0.4)}
	if got := v.Ranks[1].RankSpeed; got != want ||
		v.Speed != (Speed{20, experiment.Number(batch), 0.5, experiment.Number(batch / 0.5)}) {
		t.Errorf("got %+v, %+v, want %+v and %v samples/s of all ranks", got, v.Speed, want, batch/0.5)
	}
	if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(1))); err != nil {
		t.Fatal(err)
	}
	if v = open(t, dir, "a").View(); v.Speed.Decision != 0 || !math.IsNaN(float64(v.Speed.Samples)) ||
		v.Ranks[0].BusySeconds == 0.1 {
		t.Errorf("without the records of rank 1: got %+v, %+v, want the figures of the record of rank 0", v.Speed,
			v.Ranks[0].RankSpeed)
	}
}

// A single step varies by chance, so the list must use the same window as the view.
func TestTheListHasTheSpeedOfTheWindow(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	f.append(0, 1, 20)
	f.append(1, 1, 20)
	f.write("logs/events.jsonl", `{"step":0,"start":{"ranks":2}}`+"\n")
	f.write(lockFile, fmt.Sprintf(`{"pid":1,"host":"another-host","since":%q}`, time.Now().Format(time.RFC3339)))
	rank := `{"seconds":0.004,"waited":0}`
	f.write("logs/"+balanceFile, `{"step":20,"shares":[16,16],"step_seconds":0.005,"ranks":[`+rank+`,`+rank+`]}`+"\n")
	v := open(t, dir, "a").View()
	folder := folderOf(t, dir)
	list, err := folder.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := float64(v.Speed.SamplesPerSecond)
	if got := float64(list.Runs[0].SamplesPerSecond); v.Speed.Decision != 20 || !(math.Abs(got-want) <= 1e-6*want) {
		t.Errorf("got %g samples/s in the list, and %+v in the view", got, v.Speed)
	}
}

// The ranks of a running run write their records at different times. Records of different steps have no common
// throughput, so the view must show one step of all ranks.
func TestTheViewHasOneStepOfAllRanks(t *testing.T) {
	for _, c := range []struct {
		last  [3]int64 // last step by rank; 0: the rank has no file of records
		start string   // content of the file of events
		want  int64
		steps [3]int64
	}{
		{[3]int64{20, 20, 20}, "", 20, [3]int64{20, 20, 20}},
		{[3]int64{194, 192, 193}, "", 192, [3]int64{192, 192, 192}},
		{[3]int64{409, 1, 200}, "", 1, [3]int64{1, 1, 1}},
		{[3]int64{9000, 5001, 8999}, "", 5001, [3]int64{5001, 5001, 5001}}, // these cells contain several steps
		{[3]int64{20, 0, 19}, "", 19, [3]int64{19, 0, 19}},
		{[3]int64{20, 20, 9}, `{"step":0,"start":{"ranks":3}}` + "\n" + `{"step":9,"start":{"ranks":2}}` + "\n", 20,
			[3]int64{20, 20, 9}},
	} {
		dir := t.TempDir()
		f := newFakeRun(t, dir, "a", 3)
		for rank, last := range c.last {
			if last == 0 {
				if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(rank))); err != nil {
					t.Fatal(err)
				}
				continue
			}
			f.append(rank, 1, last)
		}
		if c.start != "" {
			f.write("logs/events.jsonl", c.start)
		}
		v := open(t, dir, "a").View()
		if v.Common != c.want || v.Last != c.last[0] {
			t.Errorf("%v: got step %d of all ranks and newest step %d, want %d and %d", c.last, v.Common, v.Last,
				c.want, c.last[0])
		}
		for i, k := range v.Ranks {
			got := int64(0)
			if k.Record != nil {
				got = k.Record.Iteration
			}
			if got != c.steps[i] {
				t.Errorf("%v: got the record of rank %d at step %d, want %d", c.last, i, got, c.steps[i])
			}
		}
	}
}

// Only the result of a run contains the throughput of the whole run, so totals must come from it.
func TestTotalsAreThoseOfTheWholeRun(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 1)
	f.append(0, 1, 20)
	run := open(t, dir, "a")
	if got := run.View().Totals; got.Ended || math.Abs(float64(got.Seconds)-1.2) > 1e-6 ||
		math.Abs(float64(got.StepSeconds)-0.06) > 1e-6 || !math.IsNaN(float64(got.SamplesPerSecond)) {
		t.Errorf("before the end: got %+v, want 1.2 s, 0.06 s per step and an unknown throughput", got)
	}
	f.write(resultFile, fmt.Sprintf(`{"exit":0,"steps":20,"ranks":1,"samples_per_second":376.8,"ended":%q}`,
		time.Now().Format(time.RFC3339)))
	update(run)
	if got := run.View().Totals; !got.Ended || got.SamplesPerSecond != 376.8 {
		t.Errorf("after the end: got %+v, want 376.8 samples/s", got)
	}
}

// When a run is copied, its settings may arrive last. This must count as a change.
func TestSettingsThatArriveLateAreAChange(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 1)
	f.append(0, 1, 20)
	settings := filepath.Join(f.dir, resolvedFile)
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(settings); err != nil {
		t.Fatal(err)
	}
	run := open(t, dir, "a")
	update(run)
	before := run.Version()
	f.write(resolvedFile, string(text))
	update(run)
	if v := run.View(); v.Version == before || v.Settings.Model.Name != "simple_cnn" {
		t.Errorf("got version %d and model %q, want a version above %d and simple_cnn", v.Version,
			v.Settings.Model.Name, before)
	}
	before = run.Version()
	update(run)
	if got := run.Version(); got != before {
		t.Errorf("without a change: got version %d, want %d", got, before)
	}
}
