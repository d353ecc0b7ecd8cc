package shares

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

func TestRulesAreChecked(t *testing.T) {
	for _, c := range []struct {
		rules   Rules
		samples []int
		want    string // part of the error; "": the shares satisfy the rules
	}{
		{Rules{Ranks: 3, Batch: 6}, []int{1, 5, 0}, ""},
		{Rules{Ranks: 3, Batch: 6}, []int{1, 5}, "got 2 shares, want one for each of 3 ranks"},
		{Rules{Ranks: 2, Batch: 6}, []int{7, -1}, "share of rank 1: got -1 samples"},
		{Rules{Ranks: 2, Batch: 6}, []int{3, 2}, "hold 5 samples, want the 6"},
		{Rules{Ranks: 2, Batch: 6, Unit: 2}, []int{3, 3}, "share of rank 0: got 3 samples, want a multiple of 2"},
		{Rules{Ranks: 3, Batch: 7, Unit: 2}, []int{4, 3, 0}, ""}, // the last group of a micro-batch may be incomplete
		{Rules{Ranks: 2, Batch: 6, Unit: 1}, []int{3, 3}, ""},
	} {
		err := c.rules.Check(c.samples)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, shares %v: got %v, want %q", c.rules, c.samples, err, c.want)
		}
	}
}

func TestPartsOfRanksCoverTheBatch(t *testing.T) {
	want := []data.Share{{Offset: 0, Count: 2}, {Offset: 2, Count: 0}, {Offset: 2, Count: 4}}
	for rank := range want {
		o := New(Rules{Rank: rank, Ranks: 3, Batch: 6}, []int{6, 6, 4})
		if err := o.Set([]int{2, 0, 4}); err != nil {
			t.Fatal(err)
		}
		if got := o.Part(); got != want[rank] || o.Own() != got.Count {
			t.Errorf("rank %d: got %+v and a share of %d, want %+v", rank, got, o.Own(), want[rank])
		}
	}
}

// compiling are plans that become ready when the test sets ready.
type compiling struct {
	ready    bool
	err      error
	released int
}

func (c *compiling) Ready() (bool, error) { return c.ready, c.err }
func (c *compiling) Release()             { c.released++ }

func twoRanks(t *testing.T) *Owner {
	t.Helper()
	o := New(Rules{Rank: 1, Ranks: 2, Batch: 6}, []int{6, 4})
	if err := o.Set([]int{4, 2}); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAChangeWaitsForThePlansOfThisRank(t *testing.T) {
	o, plans := twoRanks(t), &compiling{}
	planned := 0
	next := []int{2, 4}
	if err := o.Propose(next, func(n []int) Plans { planned = n[1]; return plans }); err != nil {
		t.Fatal(err)
	}
	next[0] = 99 // the owner must have its own copy
	vote := func(wantUnready bool) {
		t.Helper()
		unready, hash, err := o.Vote()
		if err != nil || unready != wantUnready || hash != Hash([]int{2, 4}) {
			t.Errorf("got unready %t, hash %d, %v; want unready %t and the hash of the next shares", unready, hash, err,
				wantUnready)
		}
	}
	vote(true)
	if planned != 4 || !slices.Equal(o.All(), []int{4, 2}) || !slices.Equal(o.Next(), []int{2, 4}) {
		t.Errorf("during the change: planned %d samples, current %v, next %v", planned, o.All(), o.Next())
	}
	if err := o.Propose([]int{3, 3}, nil); err == nil {
		t.Error("a second change during the first one was accepted")
	}
	plans.ready = true
	vote(false)
	adopted := 0
	if err := o.Switch(func() error {
		if adopted = o.Own(); plans.released != 0 {
			t.Error("the plans were released before the new shares were adopted")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if unready, hash, err := o.Vote(); adopted != 4 || plans.released != 1 || o.Next() != nil || unready || hash != 0 ||
		err != nil {
		t.Errorf("after the switch: adopted %d, released %d times, next %v, vote %t %d %v", adopted, plans.released,
			o.Next(), unready, hash, err)
	}
}

func TestPlansThatCannotCompileEndTheRun(t *testing.T) {
	o, cause := twoRanks(t), errors.New("no memory")
	if err := o.Propose([]int{2, 4}, func([]int) Plans { return &compiling{err: cause} }); err != nil {
		t.Fatal(err)
	}
	if unready, _, err := o.Vote(); !unready || !errors.Is(err, cause) ||
		!strings.Contains(err.Error(), "plan rank 1 for 4 samples") {
		t.Errorf("got %t, %v; want the cause, the rank and its share", unready, err)
	}
}

func TestRefusedSharesChangeNothing(t *testing.T) {
	o := twoRanks(t)
	for _, samples := range [][]int{{1, 5}, {6}, {3, 2}} {
		if err := o.Propose(samples,
			func([]int) Plans { t.Error("prepared plans for refused shares"); return nil }); err == nil {
			t.Errorf("%v: proposed", samples)
		}
		if err := o.Set(samples); err == nil {
			t.Errorf("%v: set", samples)
		}
	}
	if !slices.Equal(o.All(), []int{4, 2}) || o.Next() != nil {
		t.Errorf("got %v, and a change to %v", o.All(), o.Next())
	}
	if err := o.Propose([]int{4, 2}, nil); err != nil || o.Next() != nil { // equal shares are not a change
		t.Errorf("equal shares: got %v, and a change to %v", err, o.Next())
	}
	if err := o.SetSamples(3); err == nil {
		t.Error("one of two ranks changed its samples alone")
	}
}

func TestASingleRankHasNoShares(t *testing.T) {
	o := Alone(8, 2)
	if o.All() != nil || o.Limits() != nil || o.Own() != 8 || o.Most() != 8 {
		t.Errorf("got shares %v, limits %v, %d samples of %d", o.All(), o.Limits(), o.Own(), o.Most())
	}
	if err := o.Set([]int{8}); err == nil {
		t.Error("shares of a single rank were set")
	}
	for n, valid := range map[int]bool{0: false, 2: true, 3: false, 8: true, 10: false} {
		if err := o.SetSamples(n); (err == nil) != valid || valid && o.Own() != n {
			t.Errorf("%d samples: got %v, and a share of %d", n, err, o.Own())
		}
	}
}

func TestHashesOfSharesDiffer(t *testing.T) {
	seen := map[uint32][]int{}
	for _, s := range [][]int{{1, 23}, {12, 3}, {123}, {1, 2, 3}, {3, 2, 1}, {0, 24}, nil} {
		h := Hash(s)
		if other, found := seen[h]; found || h == 0 {
			t.Errorf("%v has the hash %d, as %v", s, h, other)
		}
		seen[h] = s
	}
}

func TestRanksJoinAndLeave(t *testing.T) {
	o := twoRanks(t)
	before := o.Version()
	for name, err := range map[string]error{
		"more samples than a limit": o.Regroup(0, []int{2}, []int{6}),
		"shares of other ranks":     o.Regroup(0, []int{6, 6, 6}, []int{4, 2}),
	} {
		if err == nil || o.Version() != before || o.Own() != 2 {
			t.Errorf("%s: got %v, and a share of %d; want an error and no change", name, err, o.Own())
		}
	}
	if err := o.Propose([]int{2, 4}, func([]int) Plans { return &compiling{ready: true} }); err != nil {
		t.Fatal(err)
	}
	if err := o.Regroup(2, []int{6, 6, 6}, []int{1, 2, 3}); err == nil {
		t.Error("the ranks changed during a change of shares")
	}
	if err := o.Switch(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := o.Regroup(2, []int{6, 6, 5}, []int{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	want := data.Share{Offset: 3, Count: 3}
	if got := o.Part(); got != want || o.Most() != 5 || o.Version() != before+2 {
		t.Errorf("got %+v, at most %d, version %d; want %+v, 5 and %d", got, o.Most(), o.Version(), want, before+2)
	}
	if err := Alone(8, 1).Regroup(0, []int{8}, []int{8}); err == nil {
		t.Error("a run without a group got other ranks")
	}
}
