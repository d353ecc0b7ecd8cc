package tuning_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/tuning"
)

func TestMicroBatchesDivideTheBatchAndLeaveASampleForEachRank(t *testing.T) {
	for _, c := range []struct {
		batch, ranks int
		pairs        bool
		want         []int
	}{
		{12, 1, false, []int{1, 2, 3, 4, 6, 12}},
		{12, 4, false, []int{1, 2, 3}},
		{12, 1, true, []int{1, 2, 3, 6}},
		{7, 2, false, []int{1}},
		{7, 1, true, []int{1}}, // with mixing, the configuration refuses an odd batch
		{2, 3, false, nil},
	} {
		if got := tuning.MicroBatches(c.batch, c.ranks, c.pairs); !slices.Equal(got, c.want) {
			t.Errorf("batch %d, %d ranks, pairs %v: got %v, want %v", c.batch, c.ranks, c.pairs, got, c.want)
		}
	}
}

func TestTheFirstCandidateIsKeptUnlessAnotherIsClearlyFaster(t *testing.T) {
	for _, c := range []struct {
		times [][]float64
		want  int
	}{
		{[][]float64{{1}}, 0},
		{[][]float64{{1}, {0.985}}, 0},
		{[][]float64{{1}, {0.975}}, 1},
		{[][]float64{{1}, {0.8}, {0.7}, {0.9}}, 2},
		{[][]float64{{1, 1}, {0.5, 1.2}}, 0}, // the time of a candidate is that of its slowest rank
		{[][]float64{{2, 1}, {1.5, 1.5}}, 1},
	} {
		if got := tuning.Fastest(c.times, tuning.Margin); got != c.want {
			t.Errorf("%v: got %d, want %d", c.times, got, c.want)
		}
	}
}

func TestChoicesComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := tuning.Open(dir)
	if _, found, err := c.Load("key"); found || err != nil {
		t.Fatalf("empty cache: got %v, %v", found, err)
	}
	want := tuning.Choice{MicroBatches: 4, CapBytes: 1 << 20, Micro: []tuning.Timed{{Name: "1", Seconds: 0.5}}}
	if err := c.Store("key", want); err != nil {
		t.Fatal(err)
	}
	if got, found, err := c.Load("key"); !found || err != nil || got.MicroBatches != 4 || got.CapBytes != 1<<20 ||
		got.Micro[0] != want.Micro[0] {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got files %v, %v", files, err)
	}
	for _, damage := range []struct{ text, want string }{
		{"{", "unexpected end"},
		{`{"version": 2, "key": "key", "micro_batches": 1}`, "version 2"},
		{`{"version": 1, "key": "other", "micro_batches": 1}`, "other"},
		{`{"version": 1, "key": "key", "micro_batches": 0}`, "0 micro-batches"},
		{`{"version": 1, "key": "key", "micro_batches": 1, "cap_bytes": -1}`, "-1 bytes"},
	} {
		if err := os.WriteFile(files[0], []byte(damage.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, found, err := c.Load("key"); found || err == nil || !strings.Contains(err.Error(), damage.want) ||
			!strings.Contains(err.Error(), files[0]) {
			t.Errorf("%s: got %v, %v, want %q and the file's name", damage.text, found, err, damage.want)
		}
	}
}
