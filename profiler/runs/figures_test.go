package runs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// The throughput of several steps must be samples / time, and not the mean of the throughputs of the steps.
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

// The test also checks that a short range of a run with merged cells has exact values.
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

// On a machine that trains, reading many records would take long. For long ranges, the figures must come from memory.
func TestLongRangesAreNotRead(t *testing.T) {
	for _, end := range []int64{1500, 6000} { // with cells of one step, and with cells of several steps
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

// A process with fewer ranks has resumed the run. The total throughput must cover the ranks of each process.
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

// The run was resumed with fewer ranks. Verdicts, decision, table and measured times must be those of the present
// ranks.
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
	folder := folderOf(t, dir)
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
