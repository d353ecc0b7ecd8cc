package runs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

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

func TestManyRanksAreReadInTurns(t *testing.T) {
	dir := t.TempDir()
	newFakeRun(t, dir, "a", 5).steps(1, 2000) // for each rank, more than leastTurn bytes
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
		// The records contain no traffic, so there is no line for it.
		t.Errorf("got %d lines with %d points, want %d lines with at most %d values", len(got.Lines), len(got.Steps),
			64*trafficColumn, mostValues)
	}
	for _, twice := range []Query{{Columns: []string{"loss", "loss"}}, {Columns: []string{"own"}, Ranks: []int{1, 1}}} {
		if _, err := run.Figures(t.Context(), twice); !errors.As(err, new(*QueryError)) {
			t.Errorf("%+v: got error %v, want a QueryError", twice, err)
		}
	}
}

// A copy of a run lacks the files of some ranks, which must be named.
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
		list := listOf(t, dir)
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
		newFakeRun(t, dir, c.name, 2).steps(1, 20) // now the missing file is copied
		update(run)
		if v := run.View(); v.Lacking != "" || v.Version == version || v.Ranks[1].Record == nil {
			t.Errorf("%s: after the file was copied: got %q and rank 1 %+v", c.name, v.Lacking, v.Ranks[1])
		}
		if err := os.Remove(filepath.Join(f.dir, logsFolder, runtime.FileName(1))); err != nil {
			t.Fatal(err)
		}
		update(run) // the first update notices that the file is missing
		update(run)
		if v := run.View(); !strings.Contains(v.Lacking, "rank 1 of 2") || v.Ranks[1].Record != nil {
			t.Errorf("%s: after the file was deleted: got %q and rank 1 %+v", c.name, v.Lacking, v.Ranks[1])
		}
	}
}

// If there are many ranks, only some are read at a time. The progress must include the others.
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
